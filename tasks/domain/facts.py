"""What is known of a host before anything is launched there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
class SymbolFacts:
    """A symbol that nothing defines: mangled, as a person reads it, and what torch has instead."""

    name: str
    readable: str
    offered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtensionFacts:
    """A compiled extension that lacks something, found without loading it.

    `libraries` are found nowhere; `versions` tell which library lacks which version of its
    symbols; of the `undefined_count` symbols that nothing defines, some are told.
    """

    package: str
    path: str
    libraries: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    undefined_count: int = 0
    undefined: tuple[SymbolFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model without reading its weights; `path` is as the sweep names it.

    `hub` says that it is looked for in the hub's cache. `config` holds what others depend on:
    architectures, sizes, whether it brings code (`auto_map`). `missing` are the shards that the
    index names and that aren't there, `damaged` maps files to what is wrong with them,
    `unfinished` counts interrupted downloads. `served` and `known_type` say whether the installed
    SGLang has code for the architecture, and transformers for the type; None where that can't be
    told.
    """

    path: str
    there: bool
    hub: bool = False
    config: Mapping[str, Any] | None = None
    bytes: int = 0
    shards: int = 0
    missing: tuple[str, ...] = ()
    damaged: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    unfinished: int = 0
    tokenizer: bool = True
    served: bool | None = None
    known_type: bool | None = None


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """A folder that a server writes to; None where the file system doesn't tell."""

    path: str
    free_bytes: int | None = None
    free_inodes: int | None = None
    writable: bool = True


@dataclass(frozen=True, slots=True)
class XidFacts:
    """A fault of a GPU that the kernel logged, and how many seconds ago."""

    age_s: float
    text: str


@dataclass(frozen=True, slots=True)
class GpuState:
    """How a GPU is connected and set; None or empty where it doesn't tell.

    The PCIe generation of an idle GPU is lower than what it runs at under load, its width isn't.
    `throttle` names why its clocks are held down, `ecc_errors` counts uncorrected ones since the
    driver's start, `retired_pending` says that a restart is needed to take bad memory out of use.
    """

    index: int
    bus_id: str = ""
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_gen_gpu: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    ecc: str = ""
    ecc_errors: int | None = None
    remap_pending: str = ""
    remap_failed: str = ""
    persistence: str = ""
    compute_mode: str = ""
    mig: str = ""
    fabric: str = ""
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    throttle: tuple[str, ...] = ()


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

    `driver_cuda` is the newest CUDA that the driver serves (13000 is 13.0), `driver_status`
    what `cuInit` said (`ok`, or the error), empty where there is no driver library. `libraries`
    tells where each shared library that was missed, or another version of it, lies. `cuda_home`
    is the toolkit's folder, empty where there is none; `tools` maps nvcc and each ptxas that
    Triton may use to its release (`13.0`), empty where it can't be run, `tool_paths` to its
    file and `architectures` to the compute capabilities that it compiles for (`120` is 12.0).
    `programs` are other compilers; `places` are the folders that a server writes to. `limits`
    are soft and hard, -1 for none. `build_locks` are those of builds that can't be running any
    more.
    """

    glibc: str = ""
    driver_cuda: int | None = None
    driver_status: str = ""
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    cuda_home: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tool_paths: Mapping[str, str] = field(default_factory=dict)
    architectures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    headers_missing: tuple[str, ...] = ()
    python_headers: bool = True
    places: Mapping[str, PlaceFacts] = field(default_factory=dict)
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | None = None
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cores: int | None = None
    interfaces: tuple[str, ...] = ()
    nvswitches: int = 0
    fabric_manager: bool = False
    build_locks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StackFacts:
    """One interpreter of a host and what it can import.

    `flags` are the names of the launch options that the installed SGLang knows, without dashes
    and underscored, and `options` what is known of each; empty where they could not be read,
    and `flags_error` says why. `gpus_error` says why nvidia-smi told of no GPU. `distributions`
    are the installed wheels that matter, by their name on the package index, and `pins` the
    versions of them that SGLang's wheel asks for; `requirements` is what some of them ask for
    themselves. `startup` is what the interpreter complained of before it ran anything, such as
    a sitecustomize that raises; `startup_files` are those that it ran, and `startup_sets` what
    they made of the variables (None: removed), `startup_forced` those that they set whatever
    was asked for. `nccl_unknown` are the variables that the NCCL of this stack doesn't mention,
    None where it can't be asked. `symbols` are those that failed imports missed, as a person
    reads them. `loaded` tells which shared libraries an import brought into its process,
    `ldconfig` where the loader looks without being told; both of CUDA's and the compiler's
    libraries only. `extensions` are those that lack something, of `extensions_examined`;
    `device_code` tells for which GPUs those that an import loaded hold code (`sm_90a`,
    `compute_80`). `xids` is None where the kernel's log may not be read. `links` is the matrix
    of `nvidia-smi topo -m` by pairs of GPUs (`0-1` -> `NV18`), `peers` that of peer access
    (`OK` or why not). `error` says why it can't be run at all, and everything else is empty
    then.
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
    requirements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    startup_files: Mapping[str, str] = field(default_factory=dict)
    startup_sets: Mapping[str, str | None] = field(default_factory=dict)
    startup_forced: tuple[str, ...] = ()
    nccl_unknown: tuple[str, ...] | None = None
    symbols: Mapping[str, str] = field(default_factory=dict)
    loaded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ldconfig: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    extensions: tuple[ExtensionFacts, ...] = ()
    extensions_examined: int = 0
    device_code: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    models: tuple[ModelFacts, ...] = ()
    xids: tuple[XidFacts, ...] | None = None
    gpu_states: tuple[GpuState, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)

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
