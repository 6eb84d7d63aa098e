"""Decide a whole load, down to its bytes and times, before anything is sent."""

import random
from dataclasses import dataclass, replace

from settings.workload import Precision, Workload
from tasks.load.parse import Asked
from tasks.load.questions import make_questions, predecessors
from tasks.load.request import encode_request
from tasks.load.schedule import Schedule, plan_schedule
from tasks.load.target import Level, Target
from tasks.load.workers import processes_for


@dataclass(frozen=True, slots=True)
class Plan:
    """One load: what is sent where, when, and by how many processes."""

    target: Target
    schedule: Schedule
    requests: tuple[bytes, ...]
    processes: int
    timeout_s: float
    asked: Asked
    precision: Precision | None = None


def source_of(seed: int, workload: Workload, level: Level, repeat: int) -> random.Random:
    """The random source of one run: the same on every server, another for every level and repeat.

    So all configurations get the same work, and no level meets a cache warmed by another.
    """
    return random.Random(f"{seed}/{workload.name}/{level}/{repeat}")


def plan_load(
    target: Target,
    workload: Workload,
    level: Level,
    source: random.Random,
    processes: int | None = None,
) -> Plan:
    """Draw prompts and times for one level; the target's vocabulary must be known."""
    vocab_size = target.vocab_size
    if vocab_size is None:
        raise ValueError("the vocabulary's size must be known before prompts are drawn")
    schedule = plan_schedule(level, workload.requests, source, workload.arrivals)
    target = replace(target, extra={**target.extra, **workload.extra})
    questions = make_questions(workload, target.backend, vocab_size, source)
    return Plan(
        target=target,
        schedule=replace(schedule, after=predecessors(questions)),
        requests=tuple(
            encode_request(target, each.prompt, each.output_len, each.before) for each in questions
        ),
        processes=processes or processes_for(schedule.slots, level.request_rate),
        timeout_s=workload.request_timeout,
        asked=Asked(target.backend, tuple(each.output_len for each in questions), schedule.paced),
        precision=workload.precision if workload.precision.within else None,
    )


def plan_warmup(target: Target, workload: Workload, source: random.Random) -> Plan | None:
    """The same kind of requests with prompts of their own, all at once; None where none is asked.

    To be drawn after the load itself, which then doesn't depend on the number of warm-ups.
    """
    if not workload.warmup_requests:
        return None
    few = workload.model_copy(
        update={"requests": workload.warmup_requests, "precision": Precision()}
    )
    plan = plan_load(target, few, Level(concurrency=few.requests), source, processes=1)
    return replace(plan, asked=replace(plan.asked, warmup=True))
