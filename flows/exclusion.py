"""One sweep per host: Prefect's own limit, where a queue shows, before the host's own lock."""

import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
from prefect.client.orchestration import get_client
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError, concurrency
from prefect.runtime import deployment

from settings.application import Settings
from tasks.domain.errors import HostLocked

LEASE_S = 60.0
"""A holder that was killed frees the slot after so long, the shortest that Prefect allows."""


def limit_of(host: str) -> str:
    """The name of the limit that keeps two deployed sweeps off one host."""
    return f"gpu-{host}"


def wait_for(settings: Settings) -> float:
    """How long to wait for a host that another sweep holds.

    Unless the settings say so, a run that was scheduled waits for its turn, and a person who
    typed a command is told at once who holds the host.
    """
    if settings.lock_wait is not None:
        return settings.lock_wait
    return math.inf if deployment.id else 0.0


@asynccontextmanager
async def turn_on(hosts: Sequence[str], wait_s: float) -> AsyncIterator[None]:
    """Wait for this run's turn among the deployed ones; without a deployment there is no queue.

    Several hosts are had together or not at all.

    The slot is for order and for people's eyes. That it is lost, because the API was restarted
    or went away, doesn't end the run: what truly excludes is the lock on the host itself.
    Raises `HostLocked` where the turn doesn't come within `wait_s`.
    """
    if not deployment.id:
        yield
        return
    names = [limit_of(host) for host in hosts]
    async with get_client() as client:
        for name in names:
            await client.upsert_global_concurrency_limit_by_name(name, 1)
    slot = concurrency(
        names,
        strict=True,
        lease_duration=LEASE_S,
        timeout_seconds=None if math.isinf(wait_s) else max(1.0, wait_s),
        raise_on_lease_renewal_failure=False,
    )
    try:
        await slot.__aenter__()
    except (TimeoutError, ConcurrencySlotAcquisitionError) as error:
        held = f"another run holds Prefect's limit {' or '.join(names)} ({error})"
        raise HostLocked(hosts[0], f"{held}; cancel it, or wait longer (lock_wait)") from error
    try:
        yield
    finally:
        with contextlib.suppress(httpx.HTTPError):
            await slot.__aexit__(None, None, None)
