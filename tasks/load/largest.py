"""The largest level that keeps an SLO: a bisection, bounded, with what is known of the answer.

It takes for granted that a heavier load keeps the SLO no better. Where the runs say otherwise, the
answer is called doubtful.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from settings.metric_names import LARGEST
from settings.workload import Largest, Workload
from tasks.domain.measurement import LevelResult, RunVerdict, SearchRole, Validity
from tasks.load.target import Level, levels_of

_CLOSE = 1.03
"""Where kept and broken are within 3 % no run tells them apart: the search is over."""

_DIGITS = 3
_SURE = 3.0
"""Standard errors by which a heavier level must have kept the SLO better to be a contradiction."""


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a search: the level, the share of its requests that kept the SLO, and of how many.

    `kept` says that the share is enough and the run no invalid one.
    """

    level: float
    attainment: float
    requests: int
    kept: bool


def following(workload: Workload, runs: Sequence[LevelResult]) -> Level | None:
    """Decide which level of a workload to run after some runs of it; None when it is done."""
    if workload.largest is None:
        return next(iter(levels_of(workload)[len(runs) :]), None)
    level = next_level(workload.largest, [step_of(workload.largest, run) for run in runs])
    return None if level is None else as_level(workload.largest, level)


def foreseen(workload: Workload) -> tuple[Level, ...]:
    """Name the levels that will be run as far as that is known: of a search its ends."""
    wanted = workload.largest
    if wanted is None:
        return levels_of(workload)
    return (as_level(wanted, wanted.low), as_level(wanted, wanted.high))


def role_of(workload: Workload) -> SearchRole:
    """What each run of a workload is: a step where a level is looked for."""
    return SearchRole.NONE if workload.largest is None else SearchRole.STEP


def answers(workloads: Sequence[Workload], runs: Sequence[LevelResult]) -> Iterator[LevelResult]:
    """Make the answer of each search that has one from the runs of one repeat."""
    for workload in workloads:
        if workload.largest is not None:
            own = [run for run in runs if run.workload == workload.name]
            found = found_level(workload.largest, own)
            if found is not None:
                yield found


def next_level(wanted: Largest, steps: Sequence[Step]) -> float | None:
    """Decide which level to run next; None when the search is over.

    First `low`, then `high`, then the geometric mean of the largest kept and the least broken, to
    three digits (a concurrency to a whole number).
    """
    kept = [step.level for step in steps if step.kept]
    broken = [step.level for step in steps if not step.kept]
    if not steps:
        return wanted.low
    if not kept or len(steps) >= wanted.levels:
        return None
    if not broken:
        return None if max(kept) >= wanted.high else wanted.high
    low, high = max(kept), min(broken)
    middle = _rounded(math.sqrt(low * high), wanted)
    if high / low <= _CLOSE or not low < middle < high:
        return None
    return middle


def as_level(wanted: Largest, level: float) -> Level:
    """Spell a level out as what is raised."""
    if wanted.of == "concurrency":
        return Level(concurrency=int(level))
    return Level(request_rate=level)


def step_of(wanted: Largest, run: LevelResult) -> Step:
    """Read from a run whether the SLO was kept at its level."""
    level = run.concurrency if wanted.of == "concurrency" else run.request_rate
    attainment = run.metrics.get("slo_attainment", 0.0)
    requests = int(run.metrics.get("completed", 0.0) + run.metrics.get("failed", 0.0))
    trusted = run.verdict.validity is not Validity.INVALID
    return Step(
        float(level or 0), attainment, requests, trusted and attainment >= wanted.attainment
    )


def contradiction(steps: Sequence[Step]) -> str:
    """Say where a heavier level kept the SLO better by more than chance; nothing where none did.

    Chance is the binomial standard error of the difference of two shares, pooled.
    """
    ordered = sorted(steps, key=lambda step: step.level)
    for number, heavier in enumerate(ordered):
        for lighter in ordered[:number]:
            total = heavier.requests + lighter.requests
            if not heavier.requests or not lighter.requests:
                continue
            kept = sum(step.attainment * step.requests for step in (heavier, lighter))
            pooled = kept / total
            error = math.sqrt(pooled * (1 - pooled) * (1 / heavier.requests + 1 / lighter.requests))
            if heavier.attainment - lighter.attainment > _SURE * error > 0:
                return (
                    f"{heavier.attainment:.1%} kept the SLO at {heavier.level:g}, "
                    f"but only {lighter.attainment:.1%} at {lighter.level:g}"
                )
    return ""


def found_level(wanted: Largest, runs: Sequence[LevelResult]) -> LevelResult | None:
    """Make the answer of a search's runs: the run of the largest level that was kept.

    Its metrics tell the level and, as `…_below`, the least level that broke the SLO: the true
    answer lies between them; none where even `high` was kept. None where nothing was kept.
    """
    steps = [step_of(wanted, run) for run in runs]
    kept = [(step.level, run) for step, run in zip(steps, runs, strict=True) if step.kept]
    if not kept:
        return None
    level, run = max(kept, key=lambda one: one[0])
    name = LARGEST[wanted.of]
    metrics = {**run.metrics, name: level}
    broken = [step.level for step in steps if not step.kept]
    if broken:
        metrics[f"{name}_below"] = min(broken)
    verdict = _doubted(run.verdict, contradiction(steps))
    return replace(run, metrics=metrics, verdict=verdict, records=(), search=SearchRole.FOUND)


def _doubted(verdict: RunVerdict, doubt: str) -> RunVerdict:
    if not doubt:
        return verdict
    return RunVerdict(
        Validity.SUSPECT, (*verdict.reasons, f"the search contradicts itself: {doubt}")
    )


def _rounded(level: float, wanted: Largest) -> float:
    if wanted.of == "concurrency":
        return float(round(level))
    return float(f"{level:.{_DIGITS}g}")
