"""What a remedy needs of the host, and what it does there: both are the agent's work."""

from collections.abc import Mapping

from tasks.domain.diagnosis import Cleanup, Remedy
from tasks.hosts.host import Host
from tasks.server.order import LaunchOrder

_LEFTOVERS = (Cleanup.JIT_LOCKS, Cleanup.SHARED_MEMORY)
"""Cleaning the GPUs ends processes, and frees ports with them; these lie about without one."""


async def unmet(host: Host, remedy: Remedy, order: LaunchOrder) -> tuple[str, ...]:
    """Tell why a remedy can't help here, a line for each of its requirements; empty if it may."""
    if not remedy.requires:
        return ()
    request = {
        "requirements": [
            {"need": one.need.value, "what": host.expand(one.what), "text": one.text}
            for one in remedy.requires
        ],
        "model": order.configuration.model_path,
        **_place(host, order.configuration.env),
    }
    answer = await host.ask("check", request)
    return tuple(answer["unmet"])


async def tidy(host: Host, order: LaunchOrder) -> tuple[str, ...]:
    """Take away what dead servers left, where a remedy asks for it; the paths of what it was."""
    what = {one for remedy in order.remedies for one in remedy.cleanup if one in _LEFTOVERS}
    if not what:
        return ()
    request = {
        "what": sorted(one.value for one in what),
        **_place(host, order.configuration.env),
    }
    answer = await host.ask("tidy", request)
    return tuple(answer["done"])


def _place(host: Host, env: Mapping[str, str]) -> dict[str, object]:
    """Where a server's files lie: its variables, and the folder of our launches."""
    return {
        "env": {**host.settings.env, **env},
        "launches": host.launch_folder(""),
    }
