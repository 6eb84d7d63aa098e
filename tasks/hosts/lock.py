"""One sweep per host: the host's own lock and the heartbeat that keeps it and our servers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from tasks.domain.errors import HostError, HostLocked
from tasks.hosts.host import Host


class Hold:
    """A host that is ours; servers whose folder is in `folders` live as long as it is renewed."""

    def __init__(self, host: Host, token: str, lease_s: float) -> None:
        self.host = host
        self.token = token
        self.lease_s = lease_s
        self.folders: set[str] = set()
        self.lost = asyncio.Event()

    async def renew(self) -> None:
        """Say once that lock and servers are still wanted."""
        request = {
            "run_folder": self.host.run_folder,
            "token": self.token,
            "folders": sorted(self.folders),
        }
        if not (await self.host.ask("renew", request))["ours"]:
            self.lost.set()

    async def keep(self) -> None:
        """Renew for ever; a renewal that fails is tried again, the lease outlasts several."""
        while not self.lost.is_set():
            await asyncio.sleep(self.lease_s / 5)
            try:
                await self.renew()
            except HostError:
                continue


@asynccontextmanager
async def hold(
    host: Host, owner: str, token: str, lease_s: float, wait_s: float
) -> AsyncIterator[Hold]:
    """Take the host's lock, waiting up to `wait_s`, and keep it.

    Raises `HostLocked` naming who holds it since when.
    """
    await _take(host, owner, token, lease_s, wait_s)
    held = Hold(host, token, lease_s)
    heartbeat = asyncio.create_task(held.keep())
    try:
        yield held
    finally:
        heartbeat.cancel()
        request = {"run_folder": host.run_folder, "token": token}
        await asyncio.shield(host.ask("unlock", request))


async def _take(host: Host, owner: str, token: str, lease_s: float, wait_s: float) -> None:
    request = {"run_folder": host.run_folder, "token": token, "owner": owner, "expiry_s": lease_s}
    deadline = time.monotonic() + wait_s
    while True:
        answer = await host.ask("lock", request)
        if answer["taken"]:
            return
        if time.monotonic() >= deadline:
            holder = answer["holder"]
            since = datetime.fromtimestamp(holder["since"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            raise HostLocked(
                host.name,
                f"held by {holder['owner']} since {since} (last sign of life "
                f"{holder['renewed_ago_s']:.0f} s ago); wait for it or cancel it",
            )
        await asyncio.sleep(1.0)
