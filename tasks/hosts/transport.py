"""How a command and a port of a machine are reached: the one seam between local and remote."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tasks.domain.errors import HostError


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended; `exit_code` is negative for a signal, None where it ran out of time."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        """Whether it exited with 0 in time."""
        return self.exit_code == 0


class Transport(Protocol):
    """Run a command on a machine, and say at which address its ports are reached from here.

    `path` is how a port is reached: `loopback`, `tunnel` or `direct`. What went on through a
    tunnel while `breaks` grew may be incomplete: an answer of a server, a load.
    """

    name: str
    python: str
    path: str

    @property
    def breaks(self) -> int:
        """How often the connection broke."""
        ...

    async def run(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float, max_output_bytes: int
    ) -> Completed:
        """Run to the end; output beyond the bound is dropped.

        Raises `HostError` where the command can't be started at all, `HostUnreachable` where
        there is no connection, `ConnectionBroken` where it broke before the command's end.
        """
        ...

    async def address(self, port: int) -> str:
        """The base URL under which a port of the machine answers from here."""
        ...

    async def close(self) -> None:
        """Let go of the connection, if there is one."""
        ...


class LocalTransport:
    """This machine."""

    def __init__(self, name: str, python: str, server_address: str | None = None) -> None:
        self.name = name
        self.python = python
        self.path = "direct" if server_address else "loopback"
        self._server_address = server_address or "127.0.0.1"

    @property
    def breaks(self) -> int:
        """Never: there is no connection."""
        return 0

    async def run(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float, max_output_bytes: int
    ) -> Completed:
        """Run a command in a session of its own; a time-out or cancellation ends all of it."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(self.name, f"can't run {argv[0]}: {error.strerror}") from error
        try:
            async with asyncio.timeout(timeout_s):
                stdout, stderr = await process.communicate(stdin)
        except TimeoutError:
            await _end_group(process)
            return Completed(None, b"", b"")
        except asyncio.CancelledError:
            await asyncio.shield(_end_group(process))
            raise
        return Completed(process.returncode, stdout[:max_output_bytes], stderr[:max_output_bytes])

    async def address(self, port: int) -> str:
        """Loopback, or where the host's servers answer by its settings."""
        return f"http://{self._server_address}:{port}"

    async def close(self) -> None:
        """Hold nothing."""


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Kill a command's whole process group and collect it.

    Not by `wait`: that also waits for the pipes, which a child that left the group holds open.
    """
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    while process.returncode is None:  # noqa: ASYNC110 - asyncio tells nobody else
        await asyncio.sleep(0.005)
