"""Validation as a Prefect task."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from settings.sweep import Sweep
from tasks.domain.facts import StackReport
from tasks.hosts.host import Host
from tasks.stack.nodes import validate_nodes


@task(name="validate", task_run_name="validate {hosts[0].name}", cache_policy=NO_CACHE)
async def validate_stacks(hosts: Sequence[Host], sweep: Sweep | None) -> list[StackReport]:
    """Gather the facts of every stack that the hosts list, and judge them."""
    return await validate_nodes(hosts, sweep)
