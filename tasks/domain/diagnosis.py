"""What is said of a launch or a run that failed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """Where in a server's life something happened; the order is the order in life."""

    START = "start"
    DISTRIBUTED = "distributed"
    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"
    GRAPH_CAPTURE = "graph_capture"
    WARMUP = "warmup"
    SERVING = "serving"
    STOPPING = "stopping"


class Action(StrEnum):
    """What an unattended sweep does about a failure."""

    RETRY = "retry"
    PRUNE = "prune"
    STOP = "stop"


class Cleanup(StrEnum):
    """A clean-up that a remedy may ask of the host; ours only, never somebody else's."""

    GPUS = "gpus"
    PORT = "port"
    SHARED_MEMORY = "shared_memory"
    JIT_LOCKS = "jit_locks"


class Need(StrEnum):
    """What a requirement asks of the host, about its `what` and `text`.

    `program`: an executable file. `knows`: such a program's help names the text. `file`: some file
    matches the glob. `writable`: a folder that can be written and has room. `snapshot`: a model of
    the hub, the server's own where none is named, whole in the cache. `stale_lock` and
    `dead_segment`: a build lock without a living owner, shared memory of a dead server of ours.
    """

    PROGRAM = "program"
    KNOWS = "knows"
    FILE = "file"
    WRITABLE = "writable"
    SNAPSHOT = "snapshot"
    STALE_LOCK = "stale_lock"
    DEAD_SEGMENT = "dead_segment"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What must hold on the host before a remedy is tried; it is checked there."""

    need: Need
    what: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change known to cure a failure mode.

    `args` use flag names without dashes and with underscores; True is the bare flag, False or
    None removes it. `scale_args` multiplies a numeric flag of the failed launch (a lower memory
    fraction after an OOM). `rename_args` gives a flag its new name and keeps its value. `alters`
    says that the cure changes what is measured. It is tried only where all that it `requires`
    holds on the host.
    """

    summary: str
    env: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    scale_args: Mapping[str, float] = field(default_factory=dict)
    rename_args: Mapping[str, str] = field(default_factory=dict)
    cleanup: tuple[Cleanup, ...] = ()
    another_port: bool = False
    another_stack: bool = False
    wait_s: float = 0.0
    longer_timeout: float = 1.0
    alters: bool = False
    requires: tuple[Requirement, ...] = ()

    @property
    def changes_server(self) -> bool:
        """Whether the server that runs is another one than was asked for."""
        settings = (self.env, self.args, self.scale_args, self.rename_args)
        return any(settings) or self.another_stack


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of a log, counted from 1."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The cause of a failure and the way on; `mode` is a name of the catalogue, or `unknown`.

    Of a server over several hosts, `node` is the rank of the one that failed, the evidence's lines
    being those of its log.
    """

    mode: str
    phase: Phase
    action: Action
    explanation: str
    remedy: Remedy | None = None
    evidence: tuple[Evidence, ...] = ()
    docs: str = ""
    node: int = 0

    @property
    def cause(self) -> str:
        """The one line that a failed launch shows: what, and the way out."""
        return f"{self.mode}: {self.explanation}"


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """How a server, or one node of it, ended; `stalled` where it still runs without a sign of life.

    `phase` None derives it from the log.
    """

    log: str
    exit_code: int | None
    phase: Phase | None = None
    stalled: bool = False


Blame = Callable[[Sequence[NodeEnd]], tuple[int, Diagnosis | None]]
"""Find the node whose failure explains the others', and the cause; None for healthy logs."""


@dataclass(frozen=True, slots=True)
class Doctor:
    """What a launch needs to explain its own failure: areas don't import each other.

    `diagnosis_of` is for a mode that was seen without a log.
    """

    blame: Blame
    is_fatal: Callable[[str], bool]
    diagnosis_of: Callable[[str, Phase], Diagnosis]
