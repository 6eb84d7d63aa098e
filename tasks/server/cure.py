"""What a remedy needs of the host, and what it does there: both are the agent's work."""

from collections.abc import Mapping

from tasks.domain.diagnosis import Cleanup, Remedy
from tasks.domain.together import together
from tasks.hosts.host import Host
from tasks.server.order import LaunchOrder
from tasks.server.site import Site


async def unmet(site: Site, remedy: Remedy, order: LaunchOrder) -> tuple[str, ...]:
    """Tell why a remedy can't help here, a line for each of its requirements; empty if it may.

    Of a server over several hosts, every one must have what it requires.
    """
    if not remedy.requires:
        return ()
    holds = site.holds_for(order.configuration)
    missing = await together(_unmet_on(hold.host, remedy, order) for hold in holds)
    if len(holds) == 1:
        return missing[0]
    return tuple(
        f"{hold.host.name}: {one}" for hold, m in zip(holds, missing, strict=True) for one in m
    )


async def _unmet_on(host: Host, remedy: Remedy, order: LaunchOrder) -> tuple[str, ...]:
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


async def tidy(site: Site, order: LaunchOrder) -> tuple[str, ...]:
    """Move stale build locks aside, where a remedy asks for it; their paths.

    Processes, ports and shared memory are freed by cleaning the GPUs.
    """
    if not any(Cleanup.JIT_LOCKS in remedy.cleanup for remedy in order.remedies):
        return ()
    hosts = [hold.host for hold in site.holds_for(order.configuration)]
    env = order.configuration.env
    answers = await together(host.ask("tidy", _place(host, env)) for host in hosts)
    return tuple(path for answer in answers for path in answer["done"])


def _place(host: Host, env: Mapping[str, str]) -> dict[str, object]:
    """Where a server's files lie: its variables, and the folder of our launches."""
    return {
        "env": {**host.settings.env, **env},
        "launches": host.launch_folder(""),
    }
