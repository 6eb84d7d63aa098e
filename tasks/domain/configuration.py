"""Server configurations, trials and what became of them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tasks.domain.answer import Answer
from tasks.domain.diagnosis import Diagnosis, Remedy
from tasks.domain.measurement import LevelResult
from tasks.domain.sglang import NODES

Value = str | int | float | bool | None | list[str | int | float]
"""A flag's or an axis' value: True is the bare flag, False and None leave it out."""


@dataclass(frozen=True, slots=True)
class ServerConfiguration:
    """One server: model path, launch flags (underscored, without dashes), environment, stack.

    `stack` is the interpreter that the sweep asks for, None for the host's first that is fit.
    """

    model_path: str
    args: Mapping[str, Value] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    stack: str | None = None

    @property
    def nodes(self) -> int:
        """Over how many hosts the server runs."""
        asked = self.args.get(NODES)
        return asked if isinstance(asked, int) and asked else 1

    @property
    def digest(self) -> str:
        """A hash of everything above, 12 hexadecimal digits, independent of the key order."""
        content = [self.model_path, dict(self.args), dict(self.env), self.stack]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration to measure; `axes` holds the sweep's axis values that made it."""

    trial_id: str
    axes: Mapping[str, Value]
    configuration: ServerConfiguration
    baseline: bool = False

    @property
    def label(self) -> str:
        """The axes as a person reads them: `cuda_graph_max_bs=128 nccl_channels=16`."""
        return axes_label(self.axes)


def axes_label(axes: Mapping[str, Value]) -> str:
    """Write axis values as a person reads them; `as given` where nothing varies."""
    return " ".join(f"{name}={value}" for name, value in axes.items()) or "as given"


class TrialVerdict(StrEnum):
    """What became of a trial."""

    MEASURED = "measured"
    SUSPECT = "suspect"
    INVALID = "invalid"
    INCORRECT = "incorrect"
    PRUNED = "pruned"
    FAILED = "failed"
    STOPPED = "stopped"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A process that was ended to free the GPUs before a launch, and why.

    `started_at` is UTC seconds since the epoch, `devices` what it held, `memory_mib` its memory on
    all GPUs as the driver told it, None where it didn't.
    """

    pid: int
    user: str
    started_at: float
    command: str
    devices: tuple[str, ...]
    reason: str
    container: str = ""
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class PeerCommand:
    """What was started on one more host of a server over several."""

    host: str
    command: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Spell:
    """What a host was busy with for a while, on behalf of one launch.

    `doing` is `clean`, a phase of the launch (`start`, `weights`, `graph_capture` …), `canary`,
    `load` or `stop`. `started_at` is UTC seconds since the epoch.
    """

    doing: str
    started_at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch within a trial: what was started, with which remedies, and how it ended.

    Times are UTC seconds since the epoch; `ready_s` is the time from the launch to ready. `ended`
    are the processes that had to go before it, `removed` what dead launches of ours had left.
    `command` is that of the first node, `peers` has the others' by their rank.
    `spells` tell what its time went on, in the order of time; none where nobody noted it.
    """

    number: int
    repeat: int
    command: tuple[str, ...]
    env: Mapping[str, str]
    stack: str
    started_at: float
    remedies: tuple[Remedy, ...] = ()
    ready_s: float | None = None
    exit_code: int | None = None
    diagnosis: Diagnosis | None = None
    folder: str = ""
    ended: tuple[EndedProcess, ...] = ()
    removed: tuple[str, ...] = ()
    peers: tuple[PeerCommand, ...] = ()
    spells: tuple[Spell, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A trial with everything that is known of it so far.

    `remedies` are those that changed the server that was measured; `reason` says in one line why
    the verdict is not `measured`. `answers` are those that the canary got, the baseline's being
    the reference for all others.
    """

    trial: Trial
    verdict: TrialVerdict
    reason: str = ""
    attempts: tuple[Attempt, ...] = ()
    levels: tuple[LevelResult, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    fingerprint: str = ""
    repeats_done: int = 0
    answers: tuple[Answer, ...] = ()

    @property
    def altered(self) -> bool:
        """Whether a remedy changed what was measured, so that it isn't what was asked for."""
        return any(remedy.alters for remedy in self.remedies)
