"""Run one level of a workload against a server, from the prompts to the verdict."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import numpy as np

from settings.workload import Workload
from tasks.domain.measurement import LevelResult
from tasks.load.capture.stream import ENOUGH
from tasks.load.datasets import SHARING
from tasks.load.drive import Driven, LoadProgress, Watch, drive
from tasks.load.metrics import compute_metrics
from tasks.load.plan import plan_load, plan_warmup, source_of
from tasks.load.server import accept_length, flush_cache, server_info, vocabulary_size
from tasks.load.target import Level, Target, levels_of
from tasks.load.verdict import Evidence, judge
from tasks.load.workers import Capture, capture

__all__ = ["LoadProgress", "bench", "run_level"]


async def run_level(
    target: Target,
    workload: Workload,
    level: Level,
    *,
    seed: int,
    repeat: int,
    on_progress: Callable[[LoadProgress], None] | None = None,
    is_alive: Callable[[], Awaitable[bool]] | None = None,
    processes: int | None = None,
    stop: asyncio.Event | None = None,
    stall_s: float | None = None,
    capturing: Capture = capture,
) -> LevelResult:
    """Warm up, flush the prefix cache, load, parse, judge.

    `capturing` sends the requests: from this machine, unless said otherwise.

    A server that dies (`is_alive` says so, or it refuses connections) ends the load: the result
    is invalid then, and says so. `stop`, once set, ends it and keeps what was measured. A
    cancellation ends it at once and keeps nothing.
    """
    target = replace(target, vocab_size=await vocabulary_size(target))
    source = source_of(seed, workload, level, repeat)
    plan = plan_load(target, workload, level, source, processes)
    warmup = plan_warmup(target, workload, source)
    quiet = Watch(is_alive=is_alive, stop=stop, stall_s=stall_s)
    warm = (await drive(warmup, quiet, capturing)).records if warmup else ()
    flushed = await flush_cache(target)
    driven = await drive(plan, Watch(on_progress, is_alive, stop, stall_s), capturing)
    # The server's average counts from the last flush: without one it is of other runs too.
    asked = flushed and not driven.facts.stopped  # a server that hangs would be waited on again
    accepted = accept_length(await server_info(target)) if asked else None
    metrics = compute_metrics(driven.records, level.concurrency, accepted, workload.slo)
    evidence = Evidence(
        level,
        workload.requests,
        driven.records,
        metrics,
        driven.facts,
        driven.late_ms,
        shares=workload.dataset in SHARING,
    )
    return LevelResult(
        workload=workload.name,
        concurrency=level.concurrency,
        request_rate=level.request_rate,
        repeat=repeat,
        metrics=metrics,
        verdict=judge(evidence),
        records=(*warm, *driven.records),
        client={**client_facts(driven), "cache_flushed": int(flushed), "seed": seed},
    )


async def bench(
    target: Target,
    workload: Workload,
    *,
    seed: int,
    on_progress: Callable[[Level, LoadProgress], None] | None = None,
    processes: int | None = None,
    stop: asyncio.Event | None = None,
) -> AsyncIterator[LevelResult]:
    """Run every level of a workload in its order; yield each result as soon as it is there."""
    for level in levels_of(workload):
        if stop is not None and stop.is_set():
            return

        def tell(progress: LoadProgress, level: Level = level) -> None:
            if on_progress is not None:
                on_progress(level, progress)

        yield await run_level(
            target,
            workload,
            level,
            seed=seed,
            repeat=0,
            on_progress=tell,
            processes=processes,
            stop=stop,
        )


def client_facts(driven: Driven) -> dict[str, float | int | str]:
    """What the client says of itself: its CPU seconds (parsing included) and its own delays.

    `send_late_p99_ms` is how late the sends were (open loop: against the schedule; closed loop:
    after a slot became free), `read_lag_p99_ms` how late the reads were after the arrivals.
    """
    facts, late_ms = driven.facts, driven.late_ms
    return {
        "cpu_s": facts.cpu_s + driven.parse_s,
        "parse_cpu_s": driven.parse_s,
        "processes": facts.processes,
        "timestamps": facts.timestamps,
        "send_late_p99_ms": float(np.percentile(late_ms, 99)) if late_ms else 0.0,
        "read_lag_p99_ms": facts.lag_p99_ns / 1e6,
        "busy": facts.busy,
        "starved_s": facts.starved_s,
        "precedence": int(facts.precedence),
        "clock_step_ms": facts.clock_step_ns / 1e6,
        "reads": facts.reads,
        "bytes": facts.bytes,
        "connections": facts.opened,
        "reconnects": facts.retries,
        "unsent": facts.unsent,
        "enough": int(facts.stopped == ENOUGH),
        "peak_rss_mib": facts.peak_rss_kib / 1024,
    }
