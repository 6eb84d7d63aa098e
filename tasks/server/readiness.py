"""Wait until a server truly serves, or know at once that it won't.

Ready is: the process that we started lives, its own log says so, the port is held by one of its
processes, and a request generates. A log line alone is no proof: it has been seen after the bind
had failed, when another server answered the warm-up request.
"""

import asyncio
import time
from dataclasses import dataclass

from tasks.domain.diagnosis import Phase
from tasks.domain.errors import LeaseExpired
from tasks.domain.progress import Progress, report
from tasks.hosts.host import Host, Watched
from tasks.server.http import generates
from tasks.server.launch import Launch, Patience, log_at
from tasks.server.signs import FatalLine, Signs

_PROBE_S = 20.0
_EXIT_RECORD_S = 3.0


@dataclass(frozen=True, slots=True)
class Ready:
    """It serves; `ready_s` is the time from the launch."""

    ready_s: float


@dataclass(frozen=True, slots=True)
class NotReady:
    """It won't serve; `exit_code` is None where it still ran.

    `stalled` where it only hung, `port_stolen` where another server answers in its place,
    `child_lost` where a process of its ended and it went on.
    """

    exit_code: int | None
    phase: Phase
    log: str
    reason: str
    stalled: bool = False
    port_stolen: bool = False
    child_lost: bool = False


async def await_ready(
    host: Host,
    launch: Launch,
    patience: Patience,
    is_fatal: FatalLine,
    what: Progress,
    expected_s: float | None = None,
) -> Ready | NotReady:
    """Watch process, log, port, HTTP and GPU memory together until they agree.

    `expected_s` is how long earlier launches took, for whoever watches.
    """
    signs, pause_s = Signs.none_yet(), 0.0
    while True:
        watched = await _look(host, launch, signs, pause_s)
        signs.unseen(host.transport.breaks)
        signs.take_in(watched, is_fatal)
        await signs.feel_memory(host, patience)
        _tell(signs, what, expected_s)
        if watched.ended_by == "lease":
            raise LeaseExpired(host.name, f"{launch.folder}: nobody renewed the server's lease")
        reason = signs.given_up(watched, patience)
        if reason is not None:
            return await _not_ready(host, launch, signs, watched, reason)
        ours = signs.log.ready and watched.port_holders == "ours"
        if ours and await generates(launch.base_url, _PROBE_S):
            return Ready(time.monotonic() - signs.started)
        pause_s = _pause_s(time.monotonic() - signs.started)


async def _look(host: Host, launch: Launch, signs: Signs, wait_s: float) -> Watched:
    """How the server is; the exit status is on record only a moment after the end."""
    deadline = time.monotonic() + wait_s + _EXIT_RECORD_S
    while True:
        watched = await host.watch(launch.folder, launch.mark, signs.log_bytes, launch.port, wait_s)
        ended_unseen = not watched.running and watched.exit_code is None
        if not ended_unseen or time.monotonic() > deadline:
            return watched
        await asyncio.sleep(0.03)


async def _not_ready(
    host: Host, launch: Launch, signs: Signs, watched: Watched, reason: str
) -> NotReady:
    log = (await log_at(host, launch.folder)).decode(errors="replace")
    stolen = signs.stolen_since is not None
    stalled = watched.running and signs.fatal_since is None and not stolen
    lost = bool(signs.lost) and watched.running
    return NotReady(watched.exit_code, signs.log.phase, log, reason, stalled, stolen, lost)


def _tell(signs: Signs, what: Progress, expected_s: float | None) -> None:
    """Say how far the launch is, and how long it should take yet."""
    detail = signs.log.detail or signs.log.phase.value.replace("_", " ")
    left_s = (expected_s or 0.0) - (time.monotonic() - signs.started)
    if left_s >= 1.0:
        detail += f", about {left_s:.0f} s left"
    report(
        Progress(
            phase="launch",
            trial=what.trial,
            trials=what.trials,
            label=what.label,
            attempt=what.attempt,
            detail=detail,
            fraction=signs.log.fraction,
        )
    )


def _pause_s(waited_s: float) -> float:
    """Look often at first, then ever more rarely; an end is told at once all the same."""
    return min(2.0, max(0.1, waited_s / 30))
