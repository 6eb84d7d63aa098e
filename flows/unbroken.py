"""Work through a tunnel counts only if the connection held all the while."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tasks.domain.errors import ConnectionBroken
from tasks.domain.progress import Progress, report
from tasks.hosts.host import Host

_Result = TypeVar("_Result")

TIMES = 5
"""How often work is done before a connection is given up that breaks each time."""


async def unbroken(host: Host, work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Do some work, and again if a connection that broke may have spoilt it.

    Where ports aren't reached through the connection, its breaks don't matter. Raises
    `ConnectionBroken` after `TIMES` broken ones.
    """
    for _ in range(TIMES):
        before = host.transport.breaks
        result = await work()
        # Only an answer proves that the connection still stands: a break is noticed late.
        if host.transport.path != "tunnel" or await _held(host, before):
            return result
        text = f"[yellow]the connection to {host.name} broke and is mended: once more[/]"
        report(Progress("load", message=text))
    raise ConnectionBroken(host.name, f"the connection broke {TIMES} times during one load")


async def _held(host: Host, before: int) -> bool:
    """Whether the connection hasn't broken since; it stands when this returns."""
    await host.ask("hello", {})
    return host.transport.breaks == before
