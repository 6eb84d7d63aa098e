"""What is known of a host before anything is launched there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """An error stops the sweep before its first launch; the others don't."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement on the facts: one line, its evidence, the way out, the mode it foresees."""

    severity: Severity
    summary: str
    evidence: str = ""
    fix: str = ""
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """One importable package of a stack; `error` is the last line of its failed import."""

    name: str
    version: str | None
    imported: bool
    import_s: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU as nvidia-smi tells it; memory in MiB."""

    index: int
    name: str
    uuid: str
    memory_total_mib: int
    memory_used_mib: int
    driver_version: str = ""
    compute_capability: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """One launch option of the installed SGLang: its names, underscored, without dashes.

    `choices` is empty where any value will do.
    """

    names: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """The machine below the interpreter; bytes, None where it could not be read.

    `driver_cuda` is the newest CUDA that the driver serves (13000 is 13.0), `driver_status` what
    `cuInit` said (`ok`, or the error), empty where there is no driver library. `paths` tells for
    each path that was asked about whether it is there. `cuda_home` is the toolkit's folder with
    what its nvcc says, empty where there is none.
    """

    glibc: str = ""
    driver_cuda: int | None = None
    driver_status: str = ""
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    cuda_home: str = ""
    nvcc: str = ""
    paths: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StackFacts:
    """One interpreter of a host and what it can import.

    `flags` are the names of the launch options that the installed SGLang knows, without dashes
    and underscored, and `options` what is known of each; empty where they could not be read, and
    `flags_error` says why. `distributions` are the installed wheels that
    matter, by their name on the package index. `error` says why the interpreter can't be run at
    all; everything else is empty then.
    """

    interpreter: str
    python_version: str
    platform: str
    packages: tuple[PackageFacts, ...]
    torch: Mapping[str, str | int | bool | list[str] | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    gpus: tuple[GpuFacts, ...] = ()
    options: tuple[Flag, ...] = ()
    flags_error: str = ""
    distributions: Mapping[str, str] = field(default_factory=dict)
    system: SystemFacts = field(default_factory=SystemFacts)
    error: str = ""

    def package(self, name: str) -> PackageFacts | None:
        """Find a package by its import name."""
        return next((package for package in self.packages if package.name == name), None)


@dataclass(frozen=True, slots=True)
class StackReport:
    """The facts of a host's stack, what they mean, and the hash that goes with every result."""

    host: str
    stack: str
    fingerprint: str
    facts: StackFacts
    findings: tuple[Finding, ...]

    @property
    def fit(self) -> bool:
        """Whether nothing forbids a launch."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)
