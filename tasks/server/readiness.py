"""Wait until a server truly serves, or know at once that it won't.

Ready is: the process that we started lives, its own log says so, the port is held by one of its
processes, and a request generates. A log line alone is no proof: it has been seen after the bind
had failed, when another server answered the warm-up request.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.domain.configuration import Spell
from tasks.domain.diagnosis import NodeEnd, Phase
from tasks.domain.errors import HostError, LeaseExpired
from tasks.domain.progress import Progress, report
from tasks.domain.together import together
from tasks.hosts.host import Watched
from tasks.server.http import generates
from tasks.server.launch import Launch, Node, Patience, log_at
from tasks.server.signs import FatalLine, Signs

_PROBE_S = 20.0
_EXIT_RECORD_S = 3.0
_LAST_LOOK_S = 10.0


@dataclass(frozen=True, slots=True)
class Ready:
    """It serves; `ready_s` is the time from the launch."""

    ready_s: float
    spells: tuple[Spell, ...] = ()


@dataclass(frozen=True, slots=True)
class NotReady:
    """It won't serve; `exit_code` is None where it still ran.

    `stalled` where it only hung, `port_stolen` where another server answers in its place,
    `child_lost` where a process of its ended and it went on. Of a server over several hosts this is
    the node with that `rank`, and `others` is how the rest of them were when it gave up.
    """

    exit_code: int | None
    phase: Phase
    log: str
    reason: str
    stalled: bool = False
    port_stolen: bool = False
    child_lost: bool = False
    rank: int = 0
    others: tuple["NotReady", ...] = ()
    spells: tuple[Spell, ...] = ()

    @property
    def end(self) -> NodeEnd:
        """What a doctor needs to know of it."""
        return NodeEnd(self.log, self.exit_code, self.phase, self.stalled)


@dataclass(frozen=True, slots=True)
class _Watch:
    """What is watched: the server, and the signs of each of its nodes."""

    launch: Launch
    signs: Sequence[Signs]
    patience: Patience
    is_fatal: FatalLine
    what: Progress
    expected_s: float | None


async def await_ready(
    launch: Launch,
    patience: Patience,
    is_fatal: FatalLine,
    what: Progress,
    expected_s: float | None = None,
) -> Ready | NotReady:
    """Watch process, log, port, HTTP and GPU memory together until they agree, on every node.

    The first node tells when the server serves, and any of them that it won't. `expected_s` is how
    long earlier launches took, for whoever watches.
    """
    watch = _Watch(launch, Signs.of_all(len(launch.nodes)), patience, is_fatal, what, expected_s)
    nodes = [asyncio.create_task(_await_node(watch, rank)) for rank in range(len(launch.nodes))]
    try:
        done, _ = await asyncio.wait(nodes, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for node in nodes:
            node.cancel()
        await asyncio.gather(*nodes, return_exceptions=True)
    outcomes = [node.result() for node in nodes if node in done]
    lost = [outcome for outcome in outcomes if isinstance(outcome, NotReady)]
    if not lost:
        return outcomes[0]
    seen = {outcome.rank for outcome in lost}
    ranks = [rank for rank in range(len(nodes)) if rank not in seen]
    others = await together(_last_look(watch, rank) for rank in ranks)
    return replace(lost[0], others=(*lost[1:], *filter(None, others)))


async def _await_node(watch: _Watch, rank: int) -> Ready | NotReady:
    """Watch one node until it is lost, or, the first one, until the server serves."""
    launch, signs, patience = watch.launch, watch.signs[rank], watch.patience
    node, pause_s = launch.nodes[rank], 0.0
    while True:
        watched = await _look(node, signs, pause_s)
        signs.unseen(node.host.transport.breaks)
        signs.take_in(watched, watch.is_fatal)
        await signs.feel_memory(node.host, patience)
        if rank == 0:
            _tell(signs, watch.what, watch.expected_s, watched.log)
        if watched.ended_by == "lease":
            raise LeaseExpired(node.host.name, f"{node.folder}: nobody renewed the server's lease")
        reason = signs.given_up(watched, patience)
        if reason is not None:
            return await _not_ready(node, rank, signs, watched, reason)
        ours = rank == 0 and signs.log.ready and watched.port_holders == "ours"
        if ours and await generates(launch.base_url, _PROBE_S):
            return Ready(time.monotonic() - signs.started, signs.spells())
        pause_s = _pause_s(time.monotonic() - signs.started)


async def _last_look(watch: _Watch, rank: int) -> NotReady | None:
    """How another node is when one is lost; None where its host doesn't tell."""
    node, signs = watch.launch.nodes[rank], watch.signs[rank]
    try:
        async with asyncio.timeout(_LAST_LOOK_S):
            watched = await _look(node, signs, 0.0)
            signs.take_in(watched, watch.is_fatal)
            reason = signs.given_up(watched, watch.patience) or "it waits for the others"
            return await _not_ready(node, rank, signs, watched, reason)
    except (HostError, TimeoutError):
        return None


async def _look(node: Node, signs: Signs, wait_s: float) -> Watched:
    """How a node is; the exit status is on record only a moment after the end."""
    deadline = time.monotonic() + wait_s + _EXIT_RECORD_S
    while True:
        watched = await node.host.watch(node.folder, node.mark, len(signs.text), node.port, wait_s)
        ended_unseen = not watched.running and watched.exit_code is None
        if not ended_unseen or time.monotonic() > deadline:
            return watched
        await asyncio.sleep(0.03)


async def _not_ready(
    node: Node, rank: int, signs: Signs, watched: Watched, reason: str
) -> NotReady:
    unseen = watched.log_bytes > len(signs.text)
    rest = await log_at(node.host, node.folder, len(signs.text)) if unseen else b""
    log = (signs.text + rest).decode(errors="replace")
    stolen = signs.stolen_since is not None
    stalled = watched.running and signs.fatal_since is None and not stolen
    lost = bool(signs.lost) and watched.running
    return NotReady(
        watched.exit_code,
        signs.log.phase,
        log,
        reason,
        stalled,
        port_stolen=stolen,
        child_lost=lost,
        rank=rank,
        spells=signs.spells(),
    )


def _tell(signs: Signs, what: Progress, expected_s: float | None, gained: bytes) -> None:
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
            log=gained.decode(errors="replace"),
        )
    )


def _pause_s(waited_s: float) -> float:
    """Look often at first, then ever more rarely; an end is told at once all the same."""
    return min(2.0, max(0.1, waited_s / 30))
