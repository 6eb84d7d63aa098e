"""From a host's settings to a host that answers."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from settings.host import Host as HostSettings
from tasks.domain.errors import HostError
from tasks.hosts.host import Host
from tasks.hosts.transport import LocalTransport


@asynccontextmanager
async def connect(name: str, settings: HostSettings) -> AsyncIterator[Host]:
    """Reach a host, and let go of it at the end.

    Raises `HostError` where it can't be reached.
    """
    if settings.address is not None:
        raise HostError(name, "hosts with an address (SSH) are not supported yet; run on the host")
    python = "python3" if settings.prefix else sys.executable
    host = Host(name, settings, LocalTransport(name, python))
    await host.open()
    try:
        yield host
    finally:
        await host.close()
