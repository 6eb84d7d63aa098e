"""One connection to a machine: opened when it is needed, and mended when it breaks."""

import asyncio
import time

from asyncssh import SSHClientConnection

from tasks.domain.errors import HostUnreachable
from tasks.hosts.ssh.login import Account, log_in

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 1.5
"""Between two attempts that failed at once, growing."""

HEDGE_S = 2.0
"""An attempt that hangs so long gets company: the network may be back, and only it doesn't know."""


class Link:
    """The connection; `breaks` counts how often it broke.

    Whoever needs it while it is broken waits until it is mended, for `patience_s` from the break
    on; then there is `HostUnreachable`, and each further call makes one more attempt.
    """

    def __init__(self, account: Account, patience_s: float) -> None:
        self.breaks = 0
        self._account = account
        self._patience_s = patience_s
        self._connection: SSHClientConnection | None = None
        self._opening = asyncio.Lock()
        self._broken_at: float | None = None
        self._closed = False

    async def connection(self) -> SSHClientConnection:
        """The connection that stands, or a new one."""
        async with self._opening:
            if self._closed:
                raise HostUnreachable(self._account.name, "the connection was closed")
            if self._connection is None:
                self._connection = await self._open()
            return self._connection

    async def close(self) -> None:
        """Close it; nothing opens it again."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            try:
                async with asyncio.timeout(2.0):
                    await connection.wait_closed()
            except TimeoutError:
                connection.abort()

    async def _open(self) -> SSHClientConnection:
        if self._broken_at is None:
            return await log_in(self._account, self._lost)
        return await self._mend(self._broken_at + self._patience_s)

    async def _mend(self, deadline: float) -> SSHClientConnection:
        """Try again and again until the deadline; an attempt that hangs isn't waited for."""
        attempts: set[asyncio.Task[SSHClientConnection]] = set()
        won: SSHClientConnection | None = None
        pause_s = FIRST_PAUSE_S
        try:
            while won is None:
                attempts.add(asyncio.create_task(log_in(self._account, self._lost)))
                done, attempts = await asyncio.wait(
                    attempts, timeout=HEDGE_S, return_when=asyncio.FIRST_COMPLETED
                )
                won = _winner(done, final=time.monotonic() >= deadline)
                if won is None and done:
                    await asyncio.sleep(pause_s)
                    pause_s = min(LONGEST_PAUSE_S, pause_s * 1.6)
            return won
        finally:
            await _give_up(attempts)

    def _lost(self, connection: SSHClientConnection) -> None:
        if connection is self._connection:
            self._connection = None
            self._broken_at = time.monotonic()
            self.breaks += 1


def _winner(
    done: set[asyncio.Task[SSHClientConnection]], *, final: bool
) -> SSHClientConnection | None:
    """The connection that an attempt brought; what another attempt can't mend is raised."""
    won = [attempt.result() for attempt in done if attempt.exception() is None]
    for late in won[1:]:
        late.abort()
    errors = [error for attempt in done if (error := attempt.exception()) is not None]
    fatal = [error for error in errors if final or not isinstance(error, HostUnreachable)]
    if fatal and not won:
        raise fatal[0]
    return won[0] if won else None


async def _give_up(attempts: set[asyncio.Task[SSHClientConnection]]) -> None:
    """End the attempts that are not needed any more."""
    for attempt in attempts:
        attempt.cancel()
    for result in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(result, SSHClientConnection):
            result.abort()
