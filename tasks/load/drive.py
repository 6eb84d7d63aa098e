"""Carry out one planned load: send, watch, parse."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.domain.measurement import RequestOutcome, RequestRecord
from tasks.load.capture.stream import ENOUGH
from tasks.load.captured import Captured, read_captured
from tasks.load.metrics import duration_of, output_tokens
from tasks.load.parse import Asked, to_record
from tasks.load.plan import Plan
from tasks.load.schedule import share
from tasks.load.tokens import PLAIN
from tasks.load.workers import Capture, CaptureFacts, Job, Teller, capture, stop_all

PROGRESS_S = 0.5
HANG_LOOK_S = 1.0
ALIVE_PAUSE_S = 0.5
HUNG = "server hangs"
"""Why a load was stopped whose server lives, but says nothing."""

SPARE_CONNECTIONS = 32
"""Connections that stand before an open loop starts; more are opened as they are taken."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load is.

    `tokens_per_s` is the mean so far. While the load runs it is an estimate: the answers that
    are still coming are counted by their reads.
    """

    requests_done: int
    requests: int
    tokens_per_s: float
    elapsed_s: float
    failed: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told twice a second, and what may end the load before its time.

    `is_alive` is asked over and over: it waits for the death, as long as a look at it may take.
    A server that sends no byte for `stall_s` while requests wait for it hangs.
    """

    on_progress: Callable[[LoadProgress], None] | None = None
    is_alive: Callable[[], Awaitable[bool]] | None = None
    stop: asyncio.Event | None = None
    stall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Driven:
    """What one load gave: records in the order of the requests, and how late each was sent.

    `parse_s` are the CPU seconds of the parsing.
    """

    records: tuple[RequestRecord, ...]
    late_ms: tuple[float, ...]
    facts: CaptureFacts
    parse_s: float


async def drive(plan: Plan, watch: Watch, capturing: Capture = capture) -> Driven:
    """Send a plan's requests and parse what came back once all of it is there."""
    with tempfile.TemporaryDirectory(prefix="sglang-sweep-load-") as name:
        jobs = plan_jobs(plan, Path(name))

        def watching(workers: Sequence[Teller]) -> Coroutine[None, None, object]:
            return _watch(plan, watch, workers)

        facts = await capturing(jobs, Path(name), watching)
        driven = await _parse([job.path for job in jobs], plan.asked, facts)
    if watch.on_progress is not None:
        watch.on_progress(_final(plan, driven))
    return driven


def plan_jobs(plan: Plan, folder: Path) -> list[Job]:
    """Deal a load out to its processes."""
    spare = min(SPARE_CONNECTIONS, len(plan.requests))
    return [
        Job(
            host=plan.target.host,
            port=plan.target.port,
            tls=plan.target.tls,
            schedule=schedule,
            indices=indices,
            requests=[plan.requests[index] for index in indices],
            preconnect=spare if schedule.paced else schedule.slots,
            timeout_s=plan.timeout_s,
            path=folder / f"streams-{number}",
            tell_ended=plan.precision is not None,
            # An answer that is fed back is needed whole.
            plain=None if schedule.after else PLAIN[plan.target.backend],
        )
        for number, (schedule, indices) in enumerate(share(plan.schedule, plan.processes))
    ]


def parse_all(
    paths: Sequence[Path], asked: Asked, given_up: threading.Event
) -> tuple[list[RequestRecord], list[float]]:
    """Parse the streams of some files one by one, so that only one is in memory at a time."""
    records: list[RequestRecord] = []
    late_ms: list[float] = []
    for path in paths:
        for captured in read_captured(path):
            if given_up.is_set():
                return records, late_ms
            records.append(to_record(captured, asked))
            late_ms += _lateness_ms(captured)
    records.sort(key=lambda record: record.index)
    return records, late_ms


def _lateness_ms(captured: Captured) -> list[float]:
    """How late it was sent; nothing where it was not, or again after a stale connection."""
    if not captured.sent_ns or captured.retries:
        return []
    return [(captured.sent_ns - captured.due_ns) / 1e6]


async def _parse(paths: Sequence[Path], asked: Asked, facts: CaptureFacts) -> Driven:
    """Parse in a thread, so that the event loop lives on."""
    given_up = threading.Event()

    def work() -> Driven:
        cpu_s = time.thread_time()
        records, late_ms = parse_all(paths, asked, given_up)
        return Driven(tuple(records), tuple(late_ms), facts, time.thread_time() - cpu_s)

    try:
        return await asyncio.to_thread(work)
    finally:
        given_up.set()


async def _watch(plan: Plan, watch: Watch, workers: Sequence[Teller]) -> None:
    """Tell how far the load is, and end it when the server is dead or somebody says stop."""
    await asyncio.gather(
        _tell(plan, watch, workers),
        _see_alive(watch, workers),
        _see_hang(watch, workers),
        _heed_stop(watch, workers),
        _see_enough(plan, workers),
    )


async def _tell(plan: Plan, watch: Watch, workers: Sequence[Teller]) -> None:
    while watch.on_progress is not None:
        await asyncio.sleep(PROGRESS_S)
        watch.on_progress(progress_of(plan, workers))


async def _see_alive(watch: Watch, workers: Sequence[Teller]) -> None:
    while watch.is_alive is not None:
        await asyncio.sleep(ALIVE_PAUSE_S)
        if not await watch.is_alive():
            stop_all(workers, "server died")
            return


async def _see_hang(watch: Watch, workers: Sequence[Teller]) -> None:
    """Give up a server that sends nothing, by the load's own clock: a host may be out of reach."""
    seen, since_s = -1, 0.0
    while watch.stall_s is not None:
        await asyncio.sleep(HANG_LOOK_S)
        now_s = max((worker.progress.get("elapsed_s", 0.0) for worker in workers), default=0.0)
        reads = sum(worker.progress.get("reads", 0) for worker in workers)
        waiting = any(worker.progress.get("in_flight", 0) for worker in workers)
        if reads != seen or not waiting:
            seen, since_s = reads, now_s
        elif now_s - since_s > watch.stall_s:
            stop_all(workers, HUNG)
            return


async def _see_enough(plan: Plan, workers: Sequence[Teller]) -> None:
    """End a level that is known well enough; what is in flight comes to its end."""
    if plan.precision is None:
        return
    from tasks.load.precision import Looks

    looks = Looks(plan.precision, plan.schedule.slots, plan.asked.output_lens)
    while True:
        await asyncio.sleep(PROGRESS_S)
        ended = [answer for worker in workers for answer in worker.ended]
        if looks.enough([worker.progress for worker in workers], ended):
            stop_all(workers, ENOUGH)
            return


async def _heed_stop(watch: Watch, workers: Sequence[Teller]) -> None:
    if watch.stop is not None:
        await watch.stop.wait()
        stop_all(workers, "interrupted")


def progress_of(plan: Plan, workers: Sequence[Teller]) -> LoadProgress:
    """Add up what the processes last said, counting tokens by finished requests and reads."""

    def total(name: str) -> int:
        return sum(worker.progress.get(name, 0) for worker in workers)

    done, done_reads = total("done"), total("done_reads")
    tokens = (done - total("failed")) * float(np.mean(plan.asked.output_lens))
    per_read = tokens / done_reads if tokens and done_reads else 1.0
    tokens_so_far = tokens + per_read * (total("reads") - done_reads)
    elapsed_s = max((worker.progress.get("elapsed_s", 0.0) for worker in workers), default=0.0)
    return LoadProgress(
        requests_done=done,
        requests=len(plan.requests),
        tokens_per_s=tokens_so_far / elapsed_s if elapsed_s else 0.0,
        elapsed_s=elapsed_s,
        failed=total("failed"),
        in_flight=total("in_flight"),
    )


def _final(plan: Plan, driven: Driven) -> LoadProgress:
    elapsed_s = duration_of(driven.records)
    finished = [r for r in driven.records if r.outcome is RequestOutcome.FINISHED]
    tokens = sum(map(output_tokens, finished))
    return LoadProgress(
        requests_done=len(driven.records),
        requests=len(plan.requests),
        tokens_per_s=tokens / elapsed_s if elapsed_s else 0.0,
        elapsed_s=elapsed_s,
        failed=len(driven.records) - len(finished),
    )
