"""Whether the objective or a constraint got worse for real, judged over the nights of a sweep.

Watched are the objective's metric in all cells and each constraint's metric in its cell, for each
configuration that the last night measured. `tasks.results.shifts` finds the shifts; this module
says what its lines stand for, and what else changed in the night a shift began.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from settings.objective import Constraint
from settings.sweep import Sweep
from tasks.results.cells import Cell, constraint_cell, objective_cell
from tasks.results.changes import what_changed
from tasks.results.nights import Board, Series, past_nights, read_board
from tasks.results.records import SweepRecord, SweepState
from tasks.results.selection import MARGIN
from tasks.results.shifts import WINDOW, Band, Bools, Floats, Line, Shift, find_shifts
from tasks.results.statistics import Interval, Noise, noise_over_nights
from tasks.results.wording import time_text


@dataclass(frozen=True, slots=True)
class LevelShift:
    """A level that shifted for good: which, by how much, since when, and what changed that night.

    `ratio` is the metric after over before, as measured, with its interval at 95 %. `alarm` says
    that it is a loss that matters, in what is or may be deployed; `changes` are what differs
    between the night it began and the measured night before.
    """

    what: str
    metric: str
    ratio: float
    interval: Interval
    better: bool
    began: SweepRecord
    found: SweepRecord
    alarm: bool
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """Where one metric of one configuration in one cell stands, in the metric's unit.

    `center` is the mean over the `nights` since the last shift, without tonight; `band` is where
    tonight was expected at 95 %, None while fewer than three nights are known. `far` says that
    tonight alone is so far on the bad side that another such night will be a regression.
    `deployable` marks the baseline and what was best in one of the last nights. `past` are all
    nights that measured it, tonight last: when they began (UTC seconds), and what they measured.
    """

    trial_id: str
    label: str
    cell: Cell
    metric: str
    nights: int
    center: float | None
    band: Interval | None
    tonight: float
    far: bool = False
    deployable: bool = False
    past: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """A sweep among its past nights; `warnings` name what could not be read."""

    nights: tuple[SweepRecord, ...]
    shifts: tuple[LevelShift, ...] = ()
    levels: tuple[Level, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def regressions(self) -> tuple[LevelShift, ...]:
        """Name the losses that are to be told tonight: found by now, and told by no night yet."""
        return tuple(shift for shift in self.shifts if shift.alarm and not self._told(shift))

    def _told(self, shift: LevelShift) -> bool:
        ids = [night.sweep_id for night in self.nights]
        since = self.nights[ids.index(shift.found.sweep_id) : -1]
        return len(since) > WINDOW or any(n.state is SweepState.REGRESSION for n in since)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A metric in the cell that decides; `lower` says that less is better."""

    metric: str
    cell: Cell
    lower: bool
    constraint: Constraint | None = None


def standing(store: Path, sweep_id: str, sweep: Sweep) -> Standing:
    """Judge a sweep among the past nights of its name on its host."""
    nights, warnings = past_nights(store, sweep.name, sweep.host, sweep_id)
    board = read_board(store, nights, [watched.metric for watched in _watched(sweep)])
    found = judge_nights(board, sweep)
    return Standing(nights, *found, (*warnings, *board.warnings))


def usual_noise(board: Board) -> Mapping[tuple[Cell, str], Noise]:
    """Tell the noise of each metric in each cell from night to night, pooled over configurations.

    It holds all that varies from launch to launch, and what varies from night to night besides:
    two runs of one night differ by no more.
    """
    places = dict.fromkeys((each.cell, each.metric) for each in board.series)
    found = {}
    for cell, metric in places:
        columns = [n for n, s in enumerate(board.series) if (s.cell, s.metric) == (cell, metric)]
        noise = noise_over_nights(board.values[:, column].tolist() for column in columns)
        if noise is not None:
            found[cell, metric] = noise
    return found


def judge_nights(board: Board, sweep: Sweep) -> tuple[tuple[LevelShift, ...], tuple[Level, ...]]:
    """Find the shifts of a board, and where each configuration of its last night stands."""
    if not board.nights or not board.series:
        return (), ()
    board = _until_measured(board)
    watched = _watched(sweep)
    values = _better_is_more(board, watched)
    names = _labels(board)
    lines = tuple(_lines(board, watched, np.isfinite(values[-1]), names))
    found = find_shifts(values, lines, MARGIN)
    lower = {each.metric: each.lower for each in watched}
    shifts = tuple(_level_shift(board, values, lines, shift, lower) for shift in found.shifts)
    levels = tuple(_levels(board, lines, found.bands, lower))
    return shifts, levels


def regression_text(shift: LevelShift) -> str:
    """Tell a shift in one line, with what changed in the night it began."""
    size = abs(shift.ratio - 1) * 100
    ends = sorted(abs(end - 1) * 100 for end in (shift.interval.low, shift.interval.high))
    word = "higher" if shift.ratio > 1 else "lower"
    since = time_text(shift.began.started_at)
    text = f"{shift.metric} is {size:.1f} % {word} ({ends[0]:.1f} to {ends[1]:.1f}) since {since} "
    return text + f"{shift.what}; {_changes_text(shift.changes)}"


def _changes_text(changes: Sequence[str]) -> str:
    if not changes:
        return "nothing else is known to have changed that night"
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return "that night changed " + ", ".join(changes[:3]) + more


def _watched(sweep: Sweep) -> tuple[_Watched, ...]:
    objective = sweep.objective
    found = [_Watched(objective.metric, objective_cell(sweep), objective.goal == "minimize")]
    for bound in sweep.constraints:
        cell, lower = constraint_cell(sweep, bound), bound.max is not None
        found.append(_Watched(bound.metric, cell, lower, bound))
    return tuple(found)


def _until_measured(board: Board) -> Board:
    """Drop the last nights in which nothing was measured."""
    nights = int(np.flatnonzero(np.isfinite(board.values).any(axis=1))[-1]) + 1
    return replace(board, nights=board.nights[:nights], values=board.values[:nights])


def _better_is_more(board: Board, watched: Sequence[_Watched]) -> Floats:
    """Take logarithms, turned so that more is better; a value that has none is missing."""
    lower = {each.metric: each.lower for each in watched}
    signs = np.array([-1.0 if lower[each.metric] else 1.0 for each in board.series])
    positive = np.where(board.values > 0, board.values, np.nan)
    return np.asarray(np.log(positive) * signs)


def _lines(
    board: Board, watched: Sequence[_Watched], tonight: Bools, names: Mapping[str, str]
) -> Iterator[Line]:
    """Watch from the broad to the narrow: the board, a cell, a configuration, one in one cell."""
    columns = {each: number for number, each in enumerate(board.series) if tonight[number]}
    objective = watched[0]
    everywhere = [each for each in columns if each.metric == objective.metric]
    decisive = [each for each in everywhere if each.cell == objective.cell]
    deployed = _deployable(board, watched)

    def of(members: Sequence[Series]) -> tuple[int, ...]:
        return tuple(columns[each] for each in members)

    if len(decisive) > 1 and len(everywhere) > len(decisive):
        name = "over all configurations and levels"
        yield Line(name, of(everywhere), 0, proof=of(decisive))
    for each in watched:
        here = [s for s in columns if (s.metric, s.cell) == (each.metric, each.cell)]
        if len(here) > 1:
            yield Line(f"over all configurations at {each.cell}", of(here), 1)
        for one in here:
            counts = one.trial_id in deployed
            name = f"of {names[one.trial_id]} at {one.cell}"
            yield Line(name, of([one]), 3, alarms=counts)
    for one in decisive:
        levels = [s for s in everywhere if s.trial_id == one.trial_id]
        if len(levels) > 1:
            counts = one.trial_id in deployed
            name = f"of {names[one.trial_id]} at all levels"
            yield Line(name, of(levels), 2, of([one]), alarms=counts, mean=True)


def _deployable(board: Board, watched: Sequence[_Watched]) -> set[str]:
    """Name the configurations whose loss matters: the baseline, and each recent night's best."""
    found = {each.trial_id for each in board.series if each.baseline}
    objective, *bounds = watched
    for row in board.values[-WINDOW:]:
        measured = {
            (each.trial_id, each.cell, each.metric): value
            for each, value in zip(board.series, row, strict=True)
            if math.isfinite(value)
        }
        feasible = {
            trial_id: value
            for (trial_id, cell, metric), value in measured.items()
            if (cell, metric) == (objective.cell, objective.metric)
            and all(
                _kept(each, measured.get((trial_id, each.cell, each.metric))) for each in bounds
            )
        }
        if feasible:
            best = min if objective.lower else max
            found.add(best(feasible, key=lambda trial_id: feasible[trial_id]))
    return found


def _kept(watched: _Watched, value: float | None) -> bool:
    bound = watched.constraint
    if bound is None or value is None:
        return False
    return (bound.max is None or value <= bound.max) and (bound.min is None or value >= bound.min)


def _labels(board: Board) -> Mapping[str, str]:
    return {each.trial_id: each.label for each in board.series}


def _level_shift(
    board: Board,
    values: Floats,
    lines: Sequence[Line],
    shift: Shift,
    lower: Mapping[str, bool],
) -> LevelShift:
    line = lines[shift.line]
    metric = board.series[line.members[0]].metric
    sign = -1.0 if lower[metric] else 1.0
    ends = sorted(math.exp(sign * end) for end in (shift.low, shift.high))
    earlier = np.isfinite(values[: shift.began, list(line.members)]).any(axis=1)
    began = board.nights[shift.began]
    before = board.nights[int(np.flatnonzero(earlier)[-1])]
    return LevelShift(
        what=line.name,
        metric=metric,
        ratio=math.exp(sign * shift.change),
        interval=Interval(ends[0], ends[1]),
        better=shift.change > 0,
        began=began,
        found=board.nights[shift.found],
        alarm=shift.alarm,
        changes=tuple(what_changed(began, before)),
    )


def _levels(
    board: Board, lines: Sequence[Line], bands: Sequence[Band], lower: Mapping[str, bool]
) -> Iterator[Level]:
    for line, band in zip(lines, bands, strict=True):
        if len(line.members) > 1:
            continue
        series = board.series[line.members[0]]
        sign = -1.0 if lower[series.metric] else 1.0
        center = math.exp(sign * band.center) if band.nights else None
        interval = None
        if math.isfinite(band.low):
            low, high = sorted(math.exp(sign * end) for end in (band.low, band.high))
            interval = Interval(low, high)
        measured = board.values[:, line.members[0]]
        tonight = float(measured[-1])
        past = tuple(
            (night.started_at, float(value))
            for night, value in zip(board.nights, measured, strict=True)
            if math.isfinite(value)
        )
        place = (series.trial_id, series.label, series.cell, series.metric)
        far = band.far and line.alarms
        yield Level(*place, band.nights, center, interval, tonight, far, line.alarms, past)
