"""Cleaning as a Prefect task."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.gpus.clean import Cleaned, clean
from tasks.hosts.host import Host


@task(name="clean", task_run_name="clean {host.name}", cache_policy=NO_CACHE)
async def clean_gpus(host: Host, grace_s: float) -> Cleaned:
    """Free the GPUs and wait until they are clean."""
    return await clean(host, grace_s=grace_s)
