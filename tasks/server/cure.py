"""What a remedy needs of the host, and what it does there: both are the agent's work."""

from collections.abc import Mapping

from tasks.domain.diagnosis import Cleanup, Remedy
from tasks.hosts.host import Host
from tasks.server.order import LaunchOrder


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
    """Move stale build locks aside, where a remedy asks for it; their paths.

    Processes, ports and shared memory are freed by cleaning the GPUs.
    """
    if not any(Cleanup.JIT_LOCKS in remedy.cleanup for remedy in order.remedies):
        return ()
    answer = await host.ask("tidy", _place(host, order.configuration.env))
    return tuple(answer["done"])


def _place(host: Host, env: Mapping[str, str]) -> dict[str, object]:
    """Where a server's files lie: its variables, and the folder of our launches."""
    return {
        "env": {**host.settings.env, **env},
        "launches": host.launch_folder(""),
    }
