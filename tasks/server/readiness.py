"""Wait until a server truly serves, or know at once that it won't.

Ready is: the process that we started lives, its own log says so, the port is held by one of its
processes, and a request generates. A log line alone is no proof: it has been seen after the bind
had failed, when another server answered the warm-up request.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tasks.domain.diagnosis import Phase
from tasks.domain.errors import LeaseExpired
from tasks.domain.progress import Progress, report
from tasks.hosts.host import Host, Watched
from tasks.server.http import generates
from tasks.server.launch import Launch, Patience, log_at
from tasks.server.log import LogState, follow

FatalLine = Callable[[str], bool]

_PROBE_S = 20.0
_EXIT_RECORD_S = 3.0


@dataclass(frozen=True, slots=True)
class Ready:
    """It serves; `ready_s` is the time from the launch."""

    ready_s: float


@dataclass(frozen=True, slots=True)
class NotReady:
    """It won't serve; `exit_code` is None where it still ran.

    `stalled` where it only hung, `port_stolen` where another server answers in its place.
    """

    exit_code: int | None
    phase: Phase
    log: str
    reason: str
    stalled: bool = False
    port_stolen: bool = False


@dataclass(slots=True)
class _Signs:
    """What has been seen of a launch so far, and when it last gave a sign of life."""

    log: LogState
    started: float
    log_bytes: int = 0
    cpu_s: float = 0.0
    life: float = 0.0
    breaks: int = 0
    fatal_since: float | None = None
    stolen_since: float | None = None


async def await_ready(
    host: Host, launch: Launch, patience: Patience, is_fatal: FatalLine, what: Progress
) -> Ready | NotReady:
    """Watch process, log, port and HTTP together until they agree."""
    signs = _Signs(LogState(), started=time.monotonic(), life=time.monotonic())
    while True:
        watched = await _look(host, launch, signs)
        if signs.breaks != host.transport.breaks:  # nobody could see whether it lived
            signs.breaks, signs.life = host.transport.breaks, time.monotonic()
        _take_in(signs, watched, is_fatal)
        _tell(signs, what)
        if watched.ended_by == "lease":
            raise LeaseExpired(host.name, f"{launch.folder}: nobody renewed the server's lease")
        reason = _given_up(signs, watched, patience)
        if reason is not None:
            return await _not_ready(host, launch, signs, watched, reason)
        ours = signs.log.ready and watched.port_holders == "ours"
        if ours and await generates(launch.base_url, _PROBE_S):
            return Ready(time.monotonic() - signs.started)
        await asyncio.sleep(_pause_s(time.monotonic() - signs.started))


async def _look(host: Host, launch: Launch, signs: _Signs) -> Watched:
    """How the server is; the exit status is on record only a moment after the end."""
    deadline = time.monotonic() + _EXIT_RECORD_S
    while True:
        watched = await host.watch(launch.folder, launch.mark, signs.log_bytes, launch.port)
        ended_unseen = not watched.running and watched.exit_code is None
        if not ended_unseen or time.monotonic() > deadline:
            return watched
        await asyncio.sleep(0.1)


def _take_in(signs: _Signs, watched: Watched, is_fatal: FatalLine) -> None:
    now = time.monotonic()
    signs.log, lines = follow(signs.log, watched.log)
    signs.log_bytes += len(watched.log)
    busy = watched.cpu_s > signs.cpu_s + 0.02 and signs.log.phase is not Phase.DISTRIBUTED
    if watched.log or busy:
        signs.life = now
    signs.cpu_s = max(signs.cpu_s, watched.cpu_s)
    if signs.fatal_since is None and any(is_fatal(line) for line in lines):
        signs.fatal_since = now
    stolen = signs.log.ready and watched.port_holders == "another"
    signs.stolen_since = (signs.stolen_since or now) if stolen else None


def _given_up(signs: _Signs, watched: Watched, patience: Patience) -> str | None:
    """Why there is no point in waiting on, or None."""
    now = time.monotonic()
    if not watched.running:
        unseen = "the process ended, and nobody saw its exit status"
        code = watched.exit_code
        return unseen if code is None else f"the process ended with exit status {code}"
    if signs.fatal_since is not None and now - signs.fatal_since > patience.certain_s:
        return "the log holds a fatal error"
    if signs.stolen_since is not None and now - signs.stolen_since > patience.certain_s:
        return "another server holds the port"
    if now - signs.life > patience.stall_s:
        return f"no sign of life for {patience.stall_s:.0f} s"
    if now - signs.started > patience.ready_s:
        return f"not ready within {patience.ready_s:.0f} s"
    return None


async def _not_ready(
    host: Host, launch: Launch, signs: _Signs, watched: Watched, reason: str
) -> NotReady:
    log = (await log_at(host, launch.folder)).decode(errors="replace")
    stolen = signs.stolen_since is not None
    stalled = watched.running and signs.fatal_since is None and not stolen
    return NotReady(watched.exit_code, signs.log.phase, log, reason, stalled, stolen)


def _tell(signs: _Signs, what: Progress) -> None:
    phase = signs.log.phase.value.replace("_", " ")
    report(
        Progress(
            phase="launch",
            trial=what.trial,
            trials=what.trials,
            label=what.label,
            attempt=what.attempt,
            detail=signs.log.detail or phase,
            fraction=signs.log.fraction,
        )
    )


def _pause_s(waited_s: float) -> float:
    """Look often at first, since a launch that fails often fails early; then ever more rarely."""
    return min(2.0, max(0.1, waited_s / 30))
