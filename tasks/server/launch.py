"""Start one server on its hosts, detached, and know it again."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.errors import HostError
from tasks.domain.together import together
from tasks.hosts.host import Ended, Host
from tasks.hosts.lock import Hold
from tasks.hosts.parts import parts_of
from tasks.server.command import CommandLine

_MOST_LOG_BYTES = 256 << 20
"""How much of a log is fetched at most."""


@dataclass(frozen=True, slots=True)
class Node:
    """A server's share of one host: what is started there, and the marker of its processes.

    A server on one host has one; of several, the first (rank 0) is the one that answers.
    """

    hold: Hold
    mark: str
    port: int
    command: CommandLine

    @property
    def host(self) -> Host:
        """Where it runs."""
        return self.hold.host

    @property
    def folder(self) -> str:
        """Where its files lie on its host."""
        return self.host.launch_folder(self.mark)


@dataclass(frozen=True, slots=True)
class Launch:
    """A server that was started, node by node, and where it answers.

    Its folder, marker, port and command are those of its first node.
    """

    nodes: tuple[Node, ...]
    base_url: str

    @property
    def folder(self) -> str:
        """Where its files lie."""
        return self.nodes[0].folder

    @property
    def mark(self) -> str:
        """The marker that its processes carry."""
        return self.nodes[0].mark

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.nodes[0].port

    @property
    def command(self) -> CommandLine:
        """What was started."""
        return self.nodes[0].command

    def where(self, rank: int) -> str:
        """Which node a rank is, in words; nothing for a server on one host."""
        return f"node {rank} ({self.nodes[rank].host.name})" if len(self.nodes) > 1 else ""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, seconds.

    `certain_s` is how long a lost launch is watched on: its process may explain itself and end,
    or a port change hands.
    """

    ready_s: float
    stall_s: float
    grace_s: float
    certain_s: float = 5.0


def mark_of(mark: str, rank: int) -> str:
    """The marker of a launch's node: nobody's is the beginning of another's.

    Two hosts of the settings may be one machine, where only the marker tells them apart.
    """
    return mark if rank == 0 else f"{mark.rstrip('/')}.node-{rank}/"


async def start(nodes: Sequence[Node], patience: Patience) -> Launch:
    """Start all nodes of a server under their hosts' supervisors.

    Their leases are renewed as long as we hold the hosts.
    """
    await together(_start(node, patience) for node in nodes)
    first = nodes[0]
    return Launch(tuple(nodes), await first.host.transport.address(first.port))


async def _start(node: Node, patience: Patience) -> None:
    host, command = node.host, node.command
    await host.write(f"{node.folder}/cmd.sh", command.script.encode(), executable=True)
    node.hold.folders.add(node.folder)
    await host.start(
        command.argv,
        env=command.env,
        folder=node.folder,
        mark=node.mark,
        lease_s=node.hold.lease_s,
        grace_s=patience.grace_s,
    )


async def end_launch(holds: Sequence[Hold], mark: str, grace_s: float) -> None:
    """End all nodes of a launch, at once, verified gone; those that never began are fine."""
    await together(
        end_marked(hold, mark_of(mark, rank), grace_s) for rank, hold in enumerate(holds)
    )


async def end_marked(hold: Hold, mark: str, grace_s: float) -> Ended:
    """End a server with every descendant, verified gone; nothing to do is fine.

    Raises `HostError` naming the processes that outlived SIGKILL.
    """
    ended = await hold.host.stop(mark, grace_s)
    hold.folders.discard(hold.host.launch_folder(mark))
    if ended.left:
        pids = ", ".join(f"{process.pid} ({process.name})" for process in ended.left)
        raise HostError(hold.host.name, f"outlived SIGKILL: {pids}; the host needs a person")
    return ended


async def log_at(host: Host, folder: str, offset: int = 0) -> bytes:
    """A server's log from an offset on, up to a bound that only a runaway log reaches."""
    parts: list[bytes] = []
    async for part in parts_of(host, f"{folder}/server.log", offset):
        parts.append(part)
        offset += len(part)
        if offset >= _MOST_LOG_BYTES:
            break
    return b"".join(parts)
