"""The load as a Prefect task."""

from collections.abc import Awaitable, Callable

from prefect import task
from prefect.cache_policies import NO_CACHE

from settings.workload import Workload
from tasks.domain.measurement import LevelResult
from tasks.load.bench_serving import Execute, Foreign, run_foreign
from tasks.load.run import LoadProgress, run_level
from tasks.load.target import Level, Target
from tasks.load.workers import Capture


@task(
    name="load",
    task_run_name="load {label} {workload.name} {level}",
    cache_policy=NO_CACHE,
)
async def drive_load(
    label: str,
    target: Target,
    workload: Workload,
    level: Level,
    repeat: int,
    seed: int,
    on_progress: Callable[[LoadProgress], None],
    is_alive: Callable[[], Awaitable[bool]] | None,
    stall_s: float,
    capturing: Capture,
) -> LevelResult:
    """Drive one level of a workload against a server that serves."""
    return await run_level(
        target,
        workload,
        level,
        seed=seed,
        repeat=repeat,
        on_progress=on_progress,
        is_alive=is_alive,
        stall_s=stall_s,
        capturing=capturing,
    )


@task(
    name="load by sglang",
    task_run_name="load {label} {workload.name} {level} by {foreign.module}",
    cache_policy=NO_CACHE,
)
async def drive_foreign(
    label: str,
    target: Target,
    workload: Workload,
    level: Level,
    repeat: int,
    seed: int,
    foreign: Foreign,
    execute: Execute,
) -> LevelResult:
    """Have SGLang's own client drive one level against a server that serves."""
    return await run_foreign(
        foreign, target, workload, level, seed=seed, repeat=repeat, execute=execute
    )
