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
    """One importable package of a stack.

    `error` is the deciding line of its failed import, None where it succeeded or where there is
    no such package; `origin` is the file that it comes from.
    """

    name: str
    version: str | None
    imported: bool
    import_s: float = 0.0
    error: str | None = None
    origin: str = ""


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

    `needs_value` is false where the bare flag will do as well; `choices` is empty where any value
    will do.
    """

    names: tuple[str, ...]
    takes_value: bool
    needs_value: bool
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """The machine below the interpreter; bytes, None where it could not be read.

    `driver_cuda` is the newest CUDA that the driver serves (13000 is 13.0), `driver_status` what
    `cuInit` said (`ok`, or the error), empty where there is no driver library. `paths` tells for
    each path that was asked about whether it is there; `libraries` where each shared library that
    an import missed, or another version of it, lies. `cuda_home` is the toolkit's folder, empty
    where there is none; `tools` maps nvcc and each ptxas that a variable names to its release
    (`13.0`), empty where it can't be run.
    """

    glibc: str = ""
    driver_cuda: int | None = None
    driver_status: str = ""
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    cuda_home: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, bool] = field(default_factory=dict)
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StackFacts:
    """One interpreter of a host and what it can import.

    `flags` are the names of the launch options that the installed SGLang knows, without dashes
    and underscored, and `options` what is known of each; empty where they could not be read, and
    `flags_error` says why. `gpus_error` says why nvidia-smi told of no GPU. `distributions` are
    the installed wheels that matter, by their name on the package index, and `pins` the versions
    of them that SGLang's wheel asks for. `startup` is what the interpreter complained of before
    it ran anything, such as a sitecustomize that raises; `error` says why it can't be run at all,
    and everything else is empty then.
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
    gpus_error: str = ""
    distributions: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    system: SystemFacts = field(default_factory=SystemFacts)
    startup: str = ""
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
