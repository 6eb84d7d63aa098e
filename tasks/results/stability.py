"""Whether a night held still: drift over its launches, runs that stand out, shifts within a run.

All of it is data beside the results. Nothing is corrected for it and no verdict changes: it tells
a person where to look.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.domain.configuration import TrialResult
from tasks.domain.measurement import LevelResult
from tasks.results.attempts import measured_attempt
from tasks.results.cells import Cell, objective_cell, runs
from tasks.results.records import StoredSweep
from tasks.results.statistics import CONFIDENCE, Interval
from tasks.results.wording import metric_title

SURE = 0.01
"""How likely chance may be at most where something is told."""

LEAST_DRIFT = 0.02
"""Of the metric over the whole night; below it the drift is told only as data."""

LEAST_SHIFT = 0.05
"""Of the time per token within a run, likewise."""

_MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class OrderEffect:
    """How a metric changed over the night by itself, from repeats of the same configurations.

    `per_hour` is the change of its logarithm an hour (-0.02: 2 % less), `hours` the night's span.
    """

    per_hour: float
    interval: Interval
    p_value: float
    hours: float
    launches: int

    @property
    def over_the_night(self) -> float:
        """The change from the first launch to the last: 0.03 is 3 % more."""
        return math.expm1(self.per_hour * self.hours)


@dataclass(frozen=True, slots=True)
class Outlier:
    """A run far from the other repeats of its trial; `deviation` 0.1 is 10 % above their mean."""

    label: str
    repeat: int
    deviation: float
    p_value: float


@dataclass(frozen=True, slots=True)
class _Point:
    """A run: when its launch began, in hours, and the logarithm of its metric."""

    hour: float
    log: float
    label: str
    repeat: int


def order_effect(results: Sequence[TrialResult], cell: Cell, metric: str) -> OrderEffect | None:
    """Estimate the trend over the night that all repeated configurations share.

    ln x = level of its trial + b · hour, by least squares: with t and y less their trial's means,
    b = sum(t y) / sum(t²), its variance sum((y - b t)²) / f / sum(t²) with f = runs - trials - 1
    degrees of freedom. None where f < 1 or no trial was launched at two times.
    """
    groups = _groups(results, cell, metric)
    points = [point for group in groups for point in group]
    freedom = len(points) - len(groups) - 1
    pairs = [pair for group in groups for pair in _centred(group)]
    spread = math.fsum(t * t for t, _ in pairs)
    if freedom < 1 or spread <= 0:
        return None
    slope = math.fsum(t * y for t, y in pairs) / spread
    left = math.fsum((y - slope * t) ** 2 for t, y in pairs)
    error = math.sqrt(left / freedom / spread)
    half = _quantile(freedom) * error
    hours = [point.hour for point in points]
    return OrderEffect(
        slope,
        Interval(slope - half, slope + half),
        _two_sided(slope, error, freedom),
        max(hours) - min(hours),
        len(points),
    )


def outliers(results: Sequence[TrialResult], cell: Cell, metric: str) -> tuple[Outlier, ...]:
    """Find runs that the noise of all others doesn't explain.

    By the externally studentised residual of the logarithms about their trial's mean: with
    e = y - mean, v = e² / (1 - 1/n), S the sum of e² and f = runs - trials degrees of freedom,
    t = sqrt(v) / sqrt((S - v) / (f - 1)), on f - 1. Its p-value is multiplied by the number of
    runs (Bonferroni). Of two repeats neither can be told to be the odd one: both are named.
    """
    groups = _groups(results, cell, metric)
    count = sum(map(len, groups))
    freedom = count - len(groups) - 1
    if freedom < 1:
        return ()
    found = [_studentised(group) for group in groups]
    total = math.fsum(residual**2 for group in found for residual, _ in group)
    told = []
    for group, residuals in zip(groups, found, strict=True):
        for point, (residual, own) in zip(group, residuals, strict=True):
            error = math.sqrt(max(0.0, total - own) / freedom)
            chance = min(1.0, count * _two_sided(math.sqrt(own), error, freedom))
            if chance < SURE:
                deviation = math.expm1(residual)
                told.append(Outlier(point.label, point.repeat, deviation, chance))
    return tuple(told)


def shifted_runs(results: Sequence[TrialResult]) -> tuple[tuple[TrialResult, LevelResult], ...]:
    """Find runs in which the time per token went to another level midway."""
    return tuple(
        (result, level)
        for result in results
        for level in result.levels
        if abs(level.metrics.get("tpot_shift_ratio", 1.0) - 1) >= LEAST_SHIFT
    )


def stability(stored: StoredSweep) -> tuple[str, ...]:
    """Say in lines what a reader of the night's figures should know."""
    cell, metric = objective_cell(stored.sweep), stored.sweep.objective.metric
    where = f"{metric_title(metric)} at {cell}"
    return (
        *_order_lines(order_effect(stored.trials, cell, metric), where),
        *_outlier_lines(outliers(stored.trials, cell, metric), where),
        *_shift_lines(shifted_runs(stored.trials)),
    )


def effect_json(found: OrderEffect | None) -> Mapping[str, object] | None:
    """Write an order effect for machines."""
    if found is None:
        return None
    return {
        "per_hour": found.per_hour,
        "interval": [found.interval.low, found.interval.high],
        "p_value": found.p_value,
        "hours": found.hours,
        "launches": found.launches,
    }


def _order_lines(found: OrderEffect | None, where: str) -> Iterator[str]:
    if found and found.p_value < SURE and abs(found.over_the_night) >= LEAST_DRIFT:
        low, high = (100 * math.expm1(edge) for edge in (found.interval.low, found.interval.high))
        yield (
            f"{where} drifted by {100 * found.over_the_night:+.1f} % over the night "
            f"({low:+.2f} … {high:+.2f} % an hour, from {found.launches} launches): "
            "compare only what was interleaved"
        )


def _outlier_lines(found: Sequence[Outlier], where: str) -> Iterator[str]:
    for each in found[:_MOST_TOLD]:
        yield (
            f"{each.label}, repeat {each.repeat}: {where} is {100 * each.deviation:+.1f} % from "
            "the mean of its repeats, more than the noise of the others explains"
        )
    if len(found) > _MOST_TOLD:
        yield f"{len(found) - _MOST_TOLD} more runs stand out in {where}"


def _shift_lines(found: Sequence[tuple[TrialResult, LevelResult]]) -> Iterator[str]:
    for result, level in found[:_MOST_TOLD]:
        change = 100 * (level.metrics["tpot_shift_ratio"] - 1)
        after = level.metrics["tpot_shift_at_s"]
        yield (
            f"{result.trial.label}, {level.workload}/{level.level}, repeat {level.repeat}: the "
            f"time per token changed by {change:+.0f} % after {after:.0f} s of the run"
        )
    if len(found) > _MOST_TOLD:
        yield f"{len(found) - _MOST_TOLD} more runs changed their pace midway"


def _groups(results: Sequence[TrialResult], cell: Cell, metric: str) -> list[list[_Point]]:
    """Take the repeats of each trial that has two or more with a known launch."""
    found = [list(_points(result, cell, metric)) for result in results]
    return [group for group in found if len(group) > 1]


def _points(result: TrialResult, cell: Cell, metric: str) -> Iterator[_Point]:
    for run in runs(result, cell):
        attempt = measured_attempt(result, run.repeat)
        value = run.metrics.get(metric, math.nan)
        if attempt is not None and math.isfinite(value) and value > 0:
            hour = attempt.started_at / 3600
            yield _Point(hour, math.log(value), result.trial.label, run.repeat)


def _centred(group: Sequence[_Point]) -> Iterator[tuple[float, float]]:
    hour = math.fsum(point.hour for point in group) / len(group)
    log = math.fsum(point.log for point in group) / len(group)
    for point in group:
        yield point.hour - hour, point.log - log


def _studentised(group: Sequence[_Point]) -> list[tuple[float, float]]:
    """Each residual, and its square over the share of the variance that the mean left it."""
    left = 1 - 1 / len(group)
    return [(residual, residual**2 / left) for _, residual in _centred(group)]


def _two_sided(value: float, error: float, freedom: int) -> float:
    if error == 0:
        return 0.0 if value else 1.0
    # scipy.special loads in a quarter of the time of scipy.stats and holds the same function.
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(value / error)))


def _quantile(freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
