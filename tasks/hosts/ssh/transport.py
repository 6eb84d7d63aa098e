"""A machine that is reached over SSH, as everything above sees it."""

import asyncio
import shlex
import signal
from collections.abc import Sequence

import asyncssh
from asyncssh import SSHClientChannel, SSHClientConnection

from settings.host import Host as HostSettings
from tasks.domain.errors import ConnectionBroken, HostError
from tasks.hosts.ssh.link import Link
from tasks.hosts.ssh.login import Account
from tasks.hosts.ssh.tunnel import Tunnel
from tasks.hosts.transport import Completed

_COMMANDS_AT_ONCE = 8
"""sshd allows ten sessions on a connection (MaxSessions); two are left for ending commands."""

_TRIES, _TRY_AGAIN_S = 10, 0.5


class SshTransport:
    """One connection for every command and every port; it is mended when it breaks."""

    def __init__(self, name: str, settings: HostSettings, address: str) -> None:
        secret = settings.passphrase
        account = Account(
            name,
            address,
            passphrase=secret.get_secret_value() if secret else None,
            connect_timeout_s=settings.connect_timeout,
        )
        self.name = name
        self.python = "python3"
        self.path = "tunnel" if settings.tunnel else "direct"
        self._link = Link(account, settings.reconnect_patience)
        self._gate = asyncio.Semaphore(_COMMANDS_AT_ONCE)
        self._server_address = settings.server_address
        self._tunnels: dict[int, Tunnel] = {}

    @property
    def breaks(self) -> int:
        """How often the connection broke."""
        return self._link.breaks

    async def run(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float, max_output_bytes: int
    ) -> Completed:
        """Run a command in a session of its own; what it leaves behind is ended by `Host.run`."""
        output = _Output(max_output_bytes)
        async with self._gate:
            connection = await self._link.connection()
            try:
                async with asyncio.timeout(timeout_s):
                    channel = await self._started(connection, output, shlex.join(argv))
                    try:
                        _feed(channel, stdin)
                        await output.ended
                    finally:
                        channel.abort()
            except TimeoutError:
                return Completed(None, b"", b"")
        if output.exit_code is None:
            why = output.lost or "the command ended without an exit status"
            raise ConnectionBroken(self.name, f"the connection broke: {why}")
        return Completed(output.exit_code, bytes(output.stdout), bytes(output.stderr))

    async def _started(
        self, connection: SSHClientConnection, output: "_Output", command: str
    ) -> SSHClientChannel[bytes]:
        """Have the login shell replace itself by the command, so that it gets the signals.

        A session that was given up stays sshd's until its command has been ended: try again.
        """
        for _ in range(_TRIES):
            try:
                channel, _ = await connection.create_session(
                    lambda: output, f"exec {command}", encoding=None
                )
                return channel
            except (asyncssh.Error, OSError) as error:
                if connection.is_closed() or not isinstance(error, asyncssh.ChannelOpenError):
                    broke = f"the connection broke: {error}"
                    raise ConnectionBroken(self.name, broke) from error
                refused = error.reason
            await asyncio.sleep(_TRY_AGAIN_S)
        hint = "MaxSessions in its sshd_config should be 10 at least"
        raise HostError(self.name, f"sshd opens no session: {refused}; {hint}")

    async def address(self, port: int) -> str:
        """A forwarded port on this machine, or the host's own address where tunnel is off."""
        if self.path == "direct":
            return f"http://{self._server_address or await self._peer()}:{port}"
        if port not in self._tunnels:
            self._tunnels[port] = Tunnel(self._link, self._server_address or "127.0.0.1", port)
            await self._tunnels[port].open()
        return f"http://127.0.0.1:{self._tunnels[port].port}"

    async def _peer(self) -> str:
        """The name or address that ~/.ssh/config gives the host."""
        connection = await self._link.connection()
        host: str = connection.get_extra_info("host")
        return f"[{host}]" if ":" in host else host

    async def close(self) -> None:
        """Close ports and connection."""
        for tunnel in self._tunnels.values():
            tunnel.close()
        await self._link.close()


class _Output(asyncssh.SSHClientSession[bytes]):
    """What a command gives: its output up to a bound, and how it ended."""

    def __init__(self, bound: int) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.exit_code: int | None = None
        self.lost: Exception | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bound = bound

    def data_received(self, data: bytes, datatype: int | None) -> None:
        kept = self.stdout if datatype is None else self.stderr
        kept += data[: max(0, self._bound - len(kept))]

    def exit_status_received(self, status: int) -> None:
        self.exit_code = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.exit_code = -_NUMBERS.get(signal, 0) or 255

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        if not self.ended.done():
            self.ended.set_result(None)


_NUMBERS = {each.name.removeprefix("SIG"): each.value for each in signal.Signals}


def _feed(channel: SSHClientChannel[bytes], stdin: bytes) -> None:
    """Give a command its input; one that has closed it already doesn't want it."""
    try:
        if stdin:
            channel.write(stdin)
        channel.write_eof()
    except BrokenPipeError:
        return
