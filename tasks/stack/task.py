"""Validation as a Prefect task."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from settings.sweep import Sweep
from tasks.domain.facts import StackReport
from tasks.hosts.host import Host
from tasks.stack.validate import validate


@task(name="validate", task_run_name="validate {host.name}", cache_policy=NO_CACHE)
async def validate_stacks(host: Host, sweep: Sweep | None) -> list[StackReport]:
    """Gather the facts of every stack that the host lists, and judge them."""
    return await validate(host, sweep)
