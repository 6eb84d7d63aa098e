"""Signs of life of a launch, and how long each phase may go without.

A launch that works writes lines, takes GPU memory or runs compilers. CPU time alone is a weaker
sign: ranks that wait for each other spin at full speed, so that it is believed for a while only,
and not at all while they join.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tasks.domain.configuration import Spell
from tasks.domain.diagnosis import Phase
from tasks.domain.nvidia_smi import GPU_QUERY, parse_gpus
from tasks.domain.sglang import WORKER_PREFIX
from tasks.hosts.host import Host, Watched
from tasks.server.launch import Patience
from tasks.server.log import LogState, follow

FatalLine = Callable[[str], bool]

ALLOWANCE: Mapping[Phase, float] = {Phase.WEIGHTS: 2.0, Phase.GRAPH_CAPTURE: 2.0, Phase.WARMUP: 2.0}
"""Times the patience with a silent launch: weights come from slow disks, kernels are built."""

SPIN = 4.0
"""How much longer a silent launch is believed that is busy."""

COMPILERS = frozenset(
    {"nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink", "ninja", "cc1plus", "c++", "g++"}
)
"""Names of the processes that build kernels: a launch that has one of these is no hang."""

_STILL_MIB = 64
_QUIET_S = 3.0
_ASK_MEMORY_S = 5.0
_BUSY_S = 0.02


@dataclass(slots=True)
class Signs:
    """What has been seen of a launch so far; times on the monotonic clock.

    `life` is the last sign of any kind, `progress` the last that can't be mere spinning. `text` is
    the log as far as it has been seen. `lost` names a process of the server that ended while the
    server went on. `company` are the signs of all its nodes: they wait for each other, so that none
    hangs while another is at work.
    """

    log: LogState
    started: float
    life: float
    progress: float
    text: bytearray = field(default_factory=bytearray, repr=False)
    cpu_s: float = 0.0
    memory_mib: int | None = None
    memory_asked: float = 0.0
    breaks: int = 0
    children: dict[int, str] = field(default_factory=dict)
    lost: str = ""
    fatal_since: float | None = None
    stolen_since: float | None = None
    company: list["Signs"] = field(default_factory=list, repr=False, compare=False)
    entered: list[tuple[Phase, float]] = field(default_factory=lambda: [(Phase.START, time.time())])

    @classmethod
    def of_all(cls, nodes: int) -> list["Signs"]:
        """Nothing has been seen of any node, from now on."""
        now, company = time.monotonic(), list["Signs"]()
        for _ in range(nodes):
            signs = cls(LogState(), started=now, life=now, progress=now, company=company)
            company.append(signs)
        return company

    def spells(self) -> tuple[Spell, ...]:
        """Tell how long it was in each phase until now, as exactly as it was looked at."""
        ends = [at for _, at in self.entered[1:]] + [time.time()]
        return tuple(
            Spell(str(phase), at, max(0.0, end - at))
            for (phase, at), end in zip(self.entered, ends, strict=True)
        )

    def unseen(self, breaks: int) -> None:
        """Take in that nobody could look for a while: the connection has broken so often."""
        if self.breaks != breaks:
            self.breaks = breaks
            self.life = self.progress = time.monotonic()

    def take_in(self, watched: Watched, is_fatal: FatalLine) -> None:
        """Take in one look at the server."""
        now = time.monotonic()
        self.log, lines = follow(self.log, watched.log)
        self.text += watched.log
        if self.log.phase is not self.entered[-1][0]:
            self.entered.append((self.log.phase, time.time()))
        building = any(name in COMPILERS for _, name in watched.family)
        if watched.log or building:
            self.progress = self.life = now
        elif watched.cpu_s > self.cpu_s + _BUSY_S and self.log.phase is not Phase.DISTRIBUTED:
            self.life = now
        self.cpu_s = max(self.cpu_s, watched.cpu_s)
        self._count_children(watched)
        if self.fatal_since is None and (self.lost or any(map(is_fatal, lines))):
            self.fatal_since = now
        stolen = self.log.ready and watched.port_holders == "another"
        self.stolen_since = (self.stolen_since or now) if stolen else None

    def _count_children(self, watched: Watched) -> None:
        """Note the server's own workers, and one that is gone while the server runs."""
        family = dict(watched.family)
        gone = [pid for pid in self.children if pid not in family]
        if watched.running and gone and not self.lost:
            self.lost = f"{self.children[gone[0]]} (pid {gone[0]})"
        workers = {pid: name for pid, name in family.items() if name.startswith(WORKER_PREFIX)}
        self.children.update(workers)

    async def feel_memory(self, host: Host, patience: Patience) -> None:
        """Where nothing else is heard, see whether the server takes GPU memory."""
        now = time.monotonic()
        silent = now - self.progress > max(_QUIET_S, self.allowance_s(patience) / 3)
        if not silent or now - self.memory_asked < _ASK_MEMORY_S:
            return
        self.memory_asked = now
        run = await host.run([*host.settings.nvidia_smi, *GPU_QUERY], repeatable=True)
        if not run.ok:
            return
        used = sum(gpu.memory_used_mib for gpu in parse_gpus(run.stdout.decode(errors="replace")))
        if self.memory_mib is not None and used > self.memory_mib + _STILL_MIB:
            self.life = self.progress = now
        self.memory_mib = used

    def allowance_s(self, patience: Patience) -> float:
        """How long the phase allows a launch to be silent."""
        return patience.stall_s * ALLOWANCE.get(self.log.phase, 1.0)

    def given_up(self, watched: Watched, patience: Patience) -> str | None:
        """Why there is no point in waiting on, or None."""
        now = time.monotonic()
        if not watched.running:
            unseen = "the process ended, and nobody saw its exit status"
            code = watched.exit_code
            return unseen if code is None else f"the process ended with exit status {code}"
        if self.fatal_since is not None and now - self.fatal_since > patience.certain_s:
            lost = f"{self.lost} ended while the server went on"
            return lost if self.lost else "the log holds a fatal error"
        if self.stolen_since is not None and now - self.stolen_since > patience.certain_s:
            return "another server holds the port"
        return self._hang(now, patience)

    def _hang(self, now: float, patience: Patience) -> str | None:
        """Why a launch that still runs won't become ready, or None."""
        allowance_s = max(signs.allowance_s(patience) for signs in self.company)
        if now - max(signs.life for signs in self.company) > allowance_s:
            return f"no sign of life for {allowance_s:.0f} s"
        if now - max(signs.progress for signs in self.company) > allowance_s * SPIN:
            return f"busy for {allowance_s * SPIN:.0f} s, without a line or more GPU memory"
        if now - self.started > patience.ready_s:
            return f"not ready within {patience.ready_s:.0f} s"
        return None
