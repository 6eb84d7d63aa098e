"""How a server that had served ended: at once known, and each node with its log.

A server may outlive its own workers: SGLang 0.5.9 goes on without a word where one was killed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.diagnosis import NodeEnd, Phase
from tasks.domain.errors import LeaseExpired
from tasks.domain.sglang import WORKER_PREFIX
from tasks.domain.together import together
from tasks.hosts.host import Watched
from tasks.server.launch import Launch, log_at

_LOOK_S = 2.0
"""How long one look at a server under load takes: each is a program that starts beside it."""

_NO_LOG = 1 << 60
"""An offset beyond any log: ask for a server's state alone."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that serves, and the pids of the workers that it had then, node by node."""

    launch: Launch
    workers: tuple[frozenset[int], ...]

    async def alive(self, wait_s: float = 0.0) -> bool:
        """Whether every node still runs, with all its workers; a bad look is taken twice.

        It looks for so long, unless one of them ends.
        """
        return self._whole(await self._look(wait_s)) or self._whole(await self._look(0.0))

    async def lives_on(self) -> bool:
        """Look for a while; False as soon as something has ended."""
        return await self.alive(_LOOK_S)

    async def _look(self, wait_s: float) -> list[Watched]:
        return await _look(self.launch, wait_s, self.workers)

    def _whole(self, states: Sequence[Watched]) -> bool:
        return all(
            state.running and workers <= workers_of(state)
            for state, workers in zip(states, self.workers, strict=True)
        )

    async def ends(self, certain_s: float) -> list[NodeEnd] | None:
        """How each node ended; None while all live.

        One that has lost a worker has so long to end by itself, and to say why. Raises
        `LeaseExpired` where our own supervisor ended it.
        """
        if await self.alive():
            return None
        states = await _look(self.launch, certain_s)
        if self._whole(states):
            return None
        for node, state in zip(self.launch.nodes, states, strict=True):
            if state.ended_by == "lease":
                raise LeaseExpired(node.host.name, "nobody renewed the server's lease")
        lost = [not w <= workers_of(s) for s, w in zip(states, self.workers, strict=True)]
        return [
            NodeEnd(log, state.exit_code, Phase.SERVING, stalled=state.running and without)
            for log, state, without in zip(await self._logs(), states, lost, strict=True)
        ]

    async def standstill(self) -> list[NodeEnd]:
        """How each node is that lives and says nothing any more."""
        return [NodeEnd(log, None, Phase.SERVING, stalled=True) for log in await self._logs()]

    async def _logs(self) -> list[str]:
        nodes = self.launch.nodes
        logs = await together(log_at(node.host, node.folder) for node in nodes)
        return [log.decode(errors="replace") for log in logs]


async def serving(launch: Launch) -> Serving:
    """Note who works for a server that serves.

    Looked at twice: what a worker has just forked bears its name, until it runs its own program.
    """
    looks = [await _look(launch), await _look(launch)]
    workers = [[workers_of(state) for state in look] for look in looks]
    return Serving(launch, tuple(one & other for one, other in zip(*workers, strict=True)))


def workers_of(state: Watched) -> frozenset[int]:
    """The pids of a server's own processes beside the one that was started."""
    return frozenset(pid for pid, name in state.family if name.startswith(WORKER_PREFIX))


async def _look(
    launch: Launch, wait_s: float = 0.0, workers: Sequence[frozenset[int]] = ()
) -> list[Watched]:
    """How each node is, without its log; at once when it has ended, or after `wait_s`.

    The end of one of its `workers` ends the wait as well.
    """
    needed = workers or [frozenset[int]()] * len(launch.nodes)
    return await together(
        node.host.watch(node.folder, node.mark, _NO_LOG, wait_s=wait_s, need=sorted(own))
        for node, own in zip(launch.nodes, needed, strict=True)
    )
