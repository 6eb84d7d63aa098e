"""One sweep per host: the host's own lock and the heartbeat that keeps it and our servers."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from rich.markup import escape

from tasks.domain.errors import ConnectionBroken, HostError, HostLocked, HostUnreachable
from tasks.domain.progress import Progress, report
from tasks.hosts.host import Host


class Hold:
    """A host that is ours; servers whose folder is in `folders` live as long as it is renewed.

    `programs` tells where what was put on the host for this sweep lies, by its name.
    """

    def __init__(self, host: Host, token: str, lease_s: float) -> None:
        self.host = host
        self.token = token
        self.lease_s = lease_s
        self.folders: set[str] = set()
        self.programs: dict[str, str] = {}
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
        await asyncio.shield(give_back(host, token))


@asynccontextmanager
async def hold_all(
    hosts: Sequence[Host], owner: str, token: str, lease_s: float, wait_s: float
) -> AsyncIterator[tuple[Hold, ...]]:
    """Take the locks of several hosts, and keep them.

    Everybody takes them in the same order, by machine and not by what somebody's settings call it:
    two sweeps that want the same hosts never wait for each other. Raises `HostError` where two
    names mean one lock.
    """
    ordered = sorted(hosts, key=_lock_of)
    for one, other in pairwise(ordered):
        if _lock_of(one) == _lock_of(other):
            fault = f"is the same machine and run folder as {one.name}; name each machine once"
            raise HostError(other.name, fault)
    async with AsyncExitStack() as stack:
        taken = [
            await stack.enter_async_context(hold(h, owner, token, lease_s, wait_s)) for h in ordered
        ]
        yield tuple(taken[ordered.index(host)] for host in hosts)


def _lock_of(host: Host) -> tuple[str, str, str]:
    """What tells one host's lock from another's, the same whoever asks."""
    return host.identity.hostname, host.identity.boot_id, host.run_folder


async def holder_of(host: Host) -> str:
    """Who holds a host since when, in words; nothing where nobody does."""
    answer = await host.ask("holder", {"run_folder": host.run_folder})
    return _told(answer["holder"]) if answer["holder"] else ""


def _told(holder: Mapping[str, Any]) -> str:
    """A holder in words."""
    since = datetime.fromtimestamp(holder["since"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    life = f"last sign of life {holder['renewed_ago_s']:.0f} s ago"
    return f"held by {holder['owner']} since {since} ({life})"


async def give_back(host: Host, token: str) -> None:
    """Give the lock back if it bears this token; where the host is gone it expires."""
    try:
        await host.ask("unlock", {"run_folder": host.run_folder, "token": token})
    except (HostUnreachable, ConnectionBroken):
        return


async def _take(host: Host, owner: str, token: str, lease_s: float, wait_s: float) -> None:
    request = {"run_folder": host.run_folder, "token": token, "owner": owner, "expiry_s": lease_s}
    deadline = time.monotonic() + wait_s
    told = None
    while True:
        answer = await host.ask("lock", request)
        if answer["taken"]:
            return
        holder = answer["holder"]
        if time.monotonic() >= deadline:
            way_out = "cancel it, or wait for it (SGLANG_SWEEP_LOCK_WAIT=6h)"
            raise HostLocked(host.name, f"{_told(holder)}; {way_out}")
        if holder["owner"] != told:
            told = holder["owner"]
            text = f"[yellow]waiting for {host.name}[/]: {escape(_told(holder))}"
            report(Progress("lock", message=text))
        await asyncio.sleep(1.0)
