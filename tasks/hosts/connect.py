"""From a host's settings to a host that answers."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from settings.host import Host as HostSettings
from tasks.hosts.host import Host
from tasks.hosts.transport import LocalTransport, Transport


@asynccontextmanager
async def connect(name: str, settings: HostSettings) -> AsyncIterator[Host]:
    """Reach a host, and let go of it at the end.

    Raises `HostError` where it can't be reached.
    """
    host = Host(name, settings, _transport(name, settings))
    try:
        await host.open()
        yield host
    finally:
        await host.close()


def _transport(name: str, settings: HostSettings) -> Transport:
    """How this host is reached, by its settings."""
    if settings.address is None:
        python = "python3" if settings.prefix else sys.executable
        return LocalTransport(name, python, settings.server_address)
    from tasks.hosts.ssh.transport import SshTransport

    return SshTransport(name, settings, settings.address)
