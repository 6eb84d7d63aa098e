"""Start one server on a host, detached, and know it again."""

from dataclasses import dataclass

from tasks.domain.errors import HostError
from tasks.hosts.host import Ended, Host
from tasks.hosts.lock import Hold
from tasks.server.command import CommandLine

_PART_BYTES = 4 << 20
"""How much of a log is fetched at once."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A server that was started: where its files lie, and the marker that its processes carry."""

    folder: str
    mark: str
    port: int
    base_url: str
    command: CommandLine


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


async def start(
    hold: Hold, command: CommandLine, port: int, mark: str, patience: Patience
) -> Launch:
    """Start a server under the host's supervisor; its lease is renewed as long as we hold it."""
    host = hold.host
    folder = host.launch_folder(mark)
    await host.write(f"{folder}/cmd.sh", command.script.encode(), executable=True)
    hold.folders.add(folder)
    await host.start(
        command.argv,
        env=command.env,
        folder=folder,
        mark=mark,
        lease_s=hold.lease_s,
        grace_s=patience.grace_s,
    )
    return Launch(folder, mark, port, await host.transport.address(port), command)


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


async def log_at(host: Host, folder: str, limit_bytes: int = 256 << 20) -> bytes:
    """A server's log, up to a bound that only a runaway log reaches."""
    parts: list[bytes] = []
    size = 0
    while size < limit_bytes:
        part = await host.read(f"{folder}/server.log", size, _PART_BYTES)
        parts.append(part)
        size += len(part)
        if len(part) < _PART_BYTES:
            break
    return b"".join(parts)
