"""Decide which processes have to go before a launch, and which must not be touched.

Pure: from what was seen on the host to a plan that a person can read before anything is done.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.configuration import EndedProcess
from tasks.hosts.host import HostProcess

PROBE_MARK = "probe-"
"""How the marker of a validation's processes begins."""

PROBE_LIFETIME_S = 900.0
"""How long a validation may run at most; an older process of one is like any other."""

DISPLAY = frozenset(
    {"Xorg", "X", "Xwayland", "gnome-shell", "gnome-session-b", "kwin_x11", "kwin_wayland", "sway"}
    | {"gdm", "gdm-x-session", "sddm", "lightdm", "plasmashell", "weston", "mutter"}
)
DAEMONS = frozenset(
    {"init", "systemd", "systemd-logind", "nvidia-persistenced", "nvidia-powerd", "nvidia-gridd"}
    | {"nv-fabricmanager", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvlsm"}
    | {
        "dockerd",
        "containerd",
        "containerd-shim",
        "nvidia-container-runtime",
        "nvidia-device-plugin",
    }
)
MONITORING = frozenset(
    {"nv-hostengine", "dcgm-exporter", "dcgmi", "nvidia-smi", "nvidia_gpu_exporter", "nvtop"}
    | {"nvitop", "gpustat", "node_exporter", "prometheus", "telegraf", "collectd", "datadog-agent"}
    | {"netdata", "otelcol", "otelcol-contrib", "grafana-agent", "alloy", "zabbix_agentd"}
)
PROTECTED_NAMES = DISPLAY | DAEMONS | MONITORING
"""Programs that are never ended: what shows the screen, keeps the driver, or watches the GPUs."""

_COMM_LENGTH = 15


class Policy(StrEnum):
    """Whose processes may be ended.

    `own`: those that were launched from the host's run folder. `user`: those of the user we are.
    `all`: any, which is for hosts where nobody else works.
    """

    OWN = "own"
    USER = "user"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Protection:
    """Who we are on the host and who is never ended; `names` are of programs, `pids` our own."""

    uid: int
    pids: frozenset[int] = frozenset()
    names: frozenset[str] = PROTECTED_NAMES


@dataclass(frozen=True, slots=True)
class Kill:
    """A process to end, and why."""

    process: HostProcess
    reason: str

    def record(self) -> EndedProcess:
        """What the trial keeps of it."""
        told = self.process
        return EndedProcess(
            told.pid, told.user, told.started_at, told.command, told.devices, self.reason,
            told.container, told.memory_mib,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spare:
    """A process to leave alone, and why; `blocks` where a launch can't share the GPUs with it."""

    process: HostProcess
    reason: str
    blocks: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about everybody who was seen, in the order of their pids."""

    policy: Policy
    kills: tuple[Kill, ...]
    spares: tuple[Spare, ...]

    @property
    def blockers(self) -> tuple[Spare, ...]:
        """Those in the way who may not be ended."""
        return tuple(spare for spare in self.spares if spare.blocks)


def plan_cleanup(processes: Iterable[HostProcess], policy: Policy, protection: Protection) -> Plan:
    """Judge each holder of a device and each process of ours."""
    seen = sorted(processes, key=lambda process: process.pid)
    verdicts = [_judge(process, policy, protection) for process in seen]
    return Plan(
        policy,
        tuple(verdict for verdict in verdicts if isinstance(verdict, Kill)),
        tuple(verdict for verdict in verdicts if isinstance(verdict, Spare)),
    )


def _judge(process: HostProcess, policy: Policy, protection: Protection) -> Kill | Spare:
    """The first rule that applies, the forbidding ones first."""
    blocks = bool(process.devices)
    if reason := _sacred(process, protection):
        return Spare(process, reason, blocks=False)
    if _is_validation(process):
        return Spare(process, "a validation of ours that is running", blocks)
    if process.uid != protection.uid and protection.uid != 0:
        return Spare(process, f"belongs to {process.user}, and we are not root", blocks)
    if reason := _MAY_END[policy](process, protection):
        return Kill(process, reason)
    return Spare(process, f"belongs to {process.user}; the policy is {policy}", blocks)


def _sacred(process: HostProcess, protection: Protection) -> str:
    """Why a process is never ended, or nothing."""
    if process.pid == 1:
        return "the first process"
    if process.pid in protection.pids:
        return "this is us"
    program = process.command.split(" ", 1)[0].rsplit("/", 1)[-1]
    for name in protection.names:
        if program == name or process.name == name[:_COMM_LENGTH]:
            return f"{name} is never ended"
    return ""


def _is_validation(process: HostProcess) -> bool:
    mark = process.mark or ""
    return mark.startswith(PROBE_MARK) and process.age_s < PROBE_LIFETIME_S


def _own(process: HostProcess, protection: Protection) -> str:
    """Another user's sweep, or that of another run folder, bears a marker too and isn't ours."""
    ours = process.launched_here and process.uid == protection.uid
    return f"left by our run {process.mark}" if ours else ""


def _user(process: HostProcess, protection: Protection) -> str:
    ours = process.uid == protection.uid and bool(process.devices)
    return _own(process, protection) or ("belongs to the same user" if ours else "")


def _all(process: HostProcess, protection: Protection) -> str:
    held = "holds the GPUs of a dedicated host" if process.devices else ""
    return _own(process, protection) or held


_MAY_END: dict[Policy, Callable[[HostProcess, Protection], str]] = {
    Policy.OWN: _own,
    Policy.USER: _user,
    Policy.ALL: _all,
}


def name_them(processes: Sequence[HostProcess]) -> str:
    """Processes as a person looks for them: `pid 4711 (python3 of alice, 2 h: python3 x.py)`."""
    return "; ".join(
        f"pid {process.pid} ({process.name} of {process.user}, {age(process.age_s)}: "
        f"{process.command[:80]})"
        for process in processes
    )


def age(seconds: float) -> str:
    """A span of time as a person says it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
