"""A port of the host on this machine, for as long as the work lasts: breaks don't close it."""

import asyncio
from typing import Any, cast

import asyncssh

from tasks.domain.errors import HostError
from tasks.hosts.ssh.link import Link

Session = asyncssh.SSHTCPSession[bytes]


class Tunnel:
    """Listens on loopback; each connection goes through the SSH connection that stands then."""

    def __init__(self, link: Link, host: str, port: int) -> None:
        self._link = link
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port on this machine."""
        if self._server is None:
            raise ValueError("the tunnel is not open")
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def open(self) -> None:
        """Take a free port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Near(self), "127.0.0.1", 0, backlog=1024)

    def close(self) -> None:
        """Close the port and let go of whoever waits for a connection."""
        if self._server is not None:
            self._server.close()
        for task in self._opening:
            task.cancel()

    def join(self, near: "_Near") -> None:
        """Connect a client of ours with the port on the host."""
        task = asyncio.create_task(self._join(near))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _join(self, near: "_Near") -> None:
        try:
            connection = await self._link.connection()
            await connection.create_connection(lambda: cast(Session, _Far(near)), *self._target)
        except (asyncssh.Error, OSError, HostError):
            near.close()
            return
        near.resume_reading()


class _Near(asyncssh.SSHForwarder):
    """The client's side; what it says waits in its socket until the far side is there."""

    def __init__(self, tunnel: Tunnel) -> None:
        super().__init__()
        self._tunnel = tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast(asyncio.ReadTransport, transport).pause_reading()
        self._tunnel.join(self)

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._transport is None

    def resume_reading(self) -> None:
        if self._transport is not None:
            super().resume_reading()

    def pause_reading(self) -> None:
        if self._transport is not None:
            super().pause_reading()


class _Far(asyncssh.SSHForwarder):
    """The side on the host; it is closed at once where the client has gone meanwhile."""

    def __init__(self, near: _Near) -> None:
        super().__init__(near)
        self._near = near

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - a channel of asyncssh's
        super().connection_made(transport)
        if self._near.gone:
            self.close()
