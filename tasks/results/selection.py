"""Which configuration to deploy: the best that is measured, correct and within the constraints."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from settings.objective import Constraint
from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.measurement import SLO
from tasks.results.cells import (
    Cell,
    bounds,
    cell_estimate,
    cell_noise,
    cell_ratio,
    constraint_cell,
    objective_cell,
    planned_cells,
    runs,
)
from tasks.results.statistics import Estimate, Interval, Noise, Ratio

_DRAWS = 20_000

MARGIN = 0.02
"""The relative difference that matters; a smaller one is no reason to change a configuration."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trial that may be chosen, with its objective and its gain over the baseline.

    `gain` is above 1 where it is better than the baseline, whichever way the objective goes;
    None where the baseline wasn't measured. `chance` is the probability that it truly is the best
    of all that may be chosen, None where nothing is known of the noise.
    """

    result: TrialResult
    objective: Estimate
    gain: Ratio | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The decision: `ranked` best first, `excluded` why each other trial may not be chosen.

    `tied` are the runners-up that the measurements can't tell from the best.
    """

    cell: Cell
    metric: str
    ranked: tuple[Candidate, ...]
    tied: tuple[Candidate, ...]
    excluded: Mapping[str, str]
    baseline: TrialResult | None
    noise: Noise | None = None

    @property
    def best(self) -> Candidate | None:
        """The configuration to deploy; None where no trial may be chosen."""
        return self.ranked[0] if self.ranked else None

    @property
    def certainty(self) -> float | None:
        """The probability that the best truly is; None where nothing is known of the noise."""
        return self.best.chance if self.best else None


def select(sweep: Sweep, trials: Sequence[TrialResult]) -> Selection:
    """Choose the best trial for the objective among those that may be chosen.

    A trial whose remedies altered what was measured may be chosen: its command line has the
    remedies in it, and it is marked wherever it is shown. Equal objectives are decided for the
    baseline, then for the fewer flags and variables, then by the trial's id.
    """
    cell, metric = objective_cell(sweep), sweep.objective.metric
    baseline = next((result for result in trials if result.trial.baseline), None)
    reasons = {result.trial.trial_id: ineligible(sweep, result) for result in trials}
    eligible = [result for result in trials if reasons[result.trial.trial_id] is None]
    noise = cell_noise(trials, cell, metric)
    candidates = (_candidate(sweep, result, baseline, cell, noise) for result in eligible)
    ranked = sorted(filter(None, candidates), key=lambda candidate: _rank(sweep, candidate))
    ranked = _with_chances(sweep, ranked, noise)
    excluded = {name: reason for name, reason in reasons.items() if reason is not None}
    tied = tuple(_tied(sweep, ranked, cell, noise))
    return Selection(cell, metric, tuple(ranked), tied, excluded, baseline, noise)


def ineligible(sweep: Sweep, result: TrialResult) -> str | None:
    """Say in one line why a trial may not be chosen; None where it may."""
    if result.verdict is not TrialVerdict.MEASURED:
        return result.reason or str(result.verdict)
    lacking = [str(cell) for cell in planned_cells(sweep) if not runs(result, cell)]
    for workload in sweep.workloads:
        if workload.largest is not None and f"{workload.name}/{SLO}" in lacking:
            return f"it doesn't keep the SLO of {workload.name} even at {workload.largest.low:g}"
    if lacking:
        return f"no valid run at {', '.join(lacking)}"
    if cell_estimate(result, objective_cell(sweep), sweep.objective.metric) is None:
        return f"{sweep.objective.metric} was not measured at {objective_cell(sweep)}"
    return next(_violations(sweep, result), None)


def broken_bounds(sweep: Sweep, result: TrialResult, cell: Cell) -> Iterator[str]:
    """Say which constraints a trial breaks in a cell, wherever it is chosen for.

    One that names a workload or a level holds there; one that names none holds everywhere. A metric
    that wasn't measured keeps no bound.
    """
    for constraint in sweep.constraints:
        if bounds(constraint, cell):
            yield from _violation(result, cell, constraint)


def as_gain(sweep: Sweep, found: Ratio | None) -> Ratio | None:
    """Turn a ratio so that above 1 is better, whichever way the objective goes."""
    if found is None or sweep.objective.goal == "maximize":
        return found
    return reciprocal(found)


def reciprocal(found: Ratio) -> Ratio:
    """Turn a ratio round; its interval turns with it."""
    interval = found.interval
    if interval is not None:
        interval = Interval(_inverse(interval.high), _inverse(interval.low))
    return Ratio(_inverse(found.value), found.n, found.n_reference, interval)


def _inverse(value: float) -> float:
    return 1 / value if value else float("inf")


def _violations(sweep: Sweep, result: TrialResult) -> Iterator[str]:
    for constraint in sweep.constraints:
        yield from _violation(result, constraint_cell(sweep, constraint), constraint)


def _violation(result: TrialResult, cell: Cell, constraint: Constraint) -> Iterator[str]:
    found = cell_estimate(result, cell, constraint.metric)
    if found is None:
        yield f"{constraint.metric} was not measured at {cell}"
    elif (bound := _broken(constraint, found.mean)) is not None:
        yield f"{constraint.metric} {found.mean:,.4g} at {cell} is {bound}"


def _broken(constraint: Constraint, value: float) -> str | None:
    if constraint.max is not None and value > constraint.max:
        return f"above the limit of {constraint.max:,g}"
    if constraint.min is not None and value < constraint.min:
        return f"below the limit of {constraint.min:,g}"
    return None


def _candidate(
    sweep: Sweep,
    result: TrialResult,
    baseline: TrialResult | None,
    cell: Cell,
    noise: Noise | None,
) -> Candidate | None:
    objective = cell_estimate(result, cell, sweep.objective.metric)
    if objective is None:
        return None
    gain = None
    if baseline is not None and baseline is not result:
        found = cell_ratio(result, baseline, cell, sweep.objective.metric, noise=noise)
        gain = as_gain(sweep, found)
    return Candidate(result, objective, gain)


def _rank(sweep: Sweep, candidate: Candidate) -> tuple[float, bool, int, str]:
    sign = -1 if sweep.objective.goal == "maximize" else 1
    trial = candidate.result.trial
    size = len(trial.configuration.args) + len(trial.configuration.env)
    return sign * candidate.objective.mean, not trial.baseline, size, trial.trial_id


def _with_chances(sweep: Sweep, ranked: list[Candidate], noise: Noise | None) -> list[Candidate]:
    """Work out the probability of each that it truly is the best.

    The posterior of all mean logarithms under a flat prior: mean_i + s * z_i / sqrt(n_i), z_i
    standard normal, s² = spread² * freedom / chi²(freedom), the same for all. Counted over
    `_DRAWS` draws of a fixed seed, so that a report doesn't change when it is written again.
    """
    if noise is None or not ranked or any(each.objective.mean <= 0 for each in ranked):
        return ranked
    import numpy as np

    sign = 1 if sweep.objective.goal == "maximize" else -1
    means = np.array([sign * math.log(each.objective.mean) for each in ranked])
    errors = np.array([1 / math.sqrt(each.objective.n) for each in ranked])
    random = np.random.default_rng(0)
    scale = noise.spread * np.sqrt(noise.freedom / random.chisquare(noise.freedom, (_DRAWS, 1)))
    drawn = means + scale * errors * random.standard_normal((_DRAWS, len(ranked)))
    won = np.bincount(drawn.argmax(axis=1), minlength=len(ranked)) / _DRAWS
    return [replace(each, chance=float(share)) for each, share in zip(ranked, won, strict=True)]


def _tied(
    sweep: Sweep, ranked: Sequence[Candidate], cell: Cell, noise: Noise | None
) -> Iterator[Candidate]:
    """Find the runners-up that can't be told from the best.

    Where the noise is known: those whose ratio to the best may be 1. Where it isn't, with a single
    run on a side, all within the margin that matters are named.
    """
    for candidate in ranked[1:]:
        best = ranked[0].result
        found = cell_ratio(candidate.result, best, cell, sweep.objective.metric, noise=noise)
        against = as_gain(sweep, found)
        if against is None:
            continue
        reach = against.value * (1 + MARGIN) if against.interval is None else against.interval.high
        if reach >= 1:
            yield candidate
