"""Run SGLang's own client on the host, beside the server and of the server's own environment."""

import asyncio
import contextlib
from dataclasses import dataclass

from tasks.domain.errors import HostError
from tasks.hosts.lock import Hold
from tasks.hosts.parts import whole
from tasks.load.bench_serving import Command, ForeignClientFailed, client_of, last_line

_LOOK_S = 2.0
_GRACE_S = 2.0
_TAIL = 1 << 12


@dataclass(frozen=True, slots=True)
class OnHost:
    """Runs the client there, detached; `mark` is the marker of its processes."""

    hold: Hold
    mark: str

    async def __call__(self, command: Command) -> bytes:
        """Run it to its end; what it wrote. Raises `ForeignClientFailed`."""
        host = self.hold.host
        there = host.launch_folder(self.mark)
        words = command(f"{there}/result.jsonl")
        await self._clear(there)
        try:
            self.hold.folders.add(there)
            await host.start(
                words,
                env={},
                folder=there,
                mark=self.mark,
                lease_s=self.hold.lease_s,
                grace_s=_GRACE_S,
            )
            code, said = await self._end_of(there)
            if code:
                raise ForeignClientFailed(client_of(words), code, last_line(said))
            return await self._written(f"{there}/result.jsonl")
        finally:
            with contextlib.suppress(HostError):
                await asyncio.shield(self._end(there))

    async def _end_of(self, there: str) -> tuple[int | None, bytes]:
        """Wait for its end: the exit status, and the last that it said."""
        offset, said = 0, b""
        while True:
            seen = await self.hold.host.watch(there, self.mark, offset, wait_s=_LOOK_S, news=False)
            offset += len(seen.log)
            said = (said + seen.log)[-_TAIL:]
            if offset >= seen.log_bytes and not seen.running:
                return seen.exit_code, said

    async def _written(self, path: str) -> bytes:
        try:
            return await whole(self.hold.host, path)
        except HostError:
            return b""  # no file: the caller says what that means

    async def _end(self, there: str) -> None:
        self.hold.folders.discard(there)
        await self.hold.host.stop(self.mark, _GRACE_S)
        await self._clear(there)

    async def _clear(self, there: str) -> None:
        host = self.hold.host
        await host.ask("remove", {"folder": there, "within": host.launch_folder("")})
