"""Find the nights at which levels shifted, in a family of series, without crying wolf.

Pure: a matrix of nights x series goes in, shifts and noise bands come out. Every value is the
natural logarithm of a metric, its sign turned so that more is better; NaN where a night has none.

A *line* is what is watched: one series, or the median over several (a loss that hits many cells
shows there while each of them is still within its noise). For a line with values y and a supposed
change at night k, with n nights of reference before it and w nights from it on,

    T = (mean of the reference - mean from k on) / (s * sqrt(1/n + 1/w))

where s² pools the squared deviations of the reference and of the regimes before it. Without a
change T has Student's distribution with as many degrees of freedom as s². The largest T over all
k of the last `WINDOW` nights is the window-limited generalized likelihood ratio (Lai, "Sequential
changepoint detection in quality control and dynamical systems", JRSS B 57, 1995); it signals a
loss beyond the quantile at 1 - p, a gain below the one at p, and the k where it is largest is the
night the shift began. A shift ends a regime: the nights from k on are the next reference.

The limit is for the whole family: over `HORIZON` nights the probability of any false alarm is
`FALSE_ALARMS`, so

    p = FALSE_ALARMS / (HORIZON * LOOKS * breadths * lines of the same breadth)

One bad night never is a shift: from k on a night counts at most `CLIP` times the limit's
deviations, too little to signal by itself; nor are bad nights between good ones: a new level has
the old noise, so a window whose variance fails the F test against s² at `_UNEVEN` is no level.
Reference nights that are outliers by the generalized
ESD test (Rosner, Technometrics 25, 1983) are left out of its mean and spread.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri, stdtrit

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FALSE_ALARMS = 0.005
"""Probability of any false alarm of the whole family over `HORIZON` nights.

Half of what may happen (1 in 100): noise with heavier tails than Gaussian takes the rest.
"""

HORIZON = 60
"""Nights over which `FALSE_ALARMS` is spent."""

WINDOW = 14
"""How many nights back a change may have begun."""

LEAST_REFERENCE = 5
"""Nights before a supposed change; with fewer a line is still being learned."""

LEAST_AFTER = 2
"""Nights from a supposed change on; one night alone may be an outlier."""

LOOKS = 4.0
"""How many independent tests the overlapping windows of one night amount to.

Simulated: with windows of 2 to 14 nights and p from 1e-5 to 3e-6 a line of Gaussian noise signals
3.3 to 3.9 times as often as a single test would.
"""

CLIP = 0.8
"""Most deviations of one night from the reference, in units of the limit."""

LEAST_SPREAD = 1e-3
"""Noise below 0.1 % is not believed: a simulated or rounded metric may have none at all."""

_OUTLIER = 0.001
_UNEVEN = 0.01
_MOST_OUTLIERS = 4
_NIGHTS_PER_OUTLIER = 8
_BAND = 0.95
_COMPLETE = 2 / 3
"""Share of a line's series that a night must have."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that is watched: the median of some series (columns of the matrix), or the mean.

    The median tells what happened to most of them, whatever one does; the mean is the surer one
    where they belong together, as the levels of one configuration do.

    `breadth` tells lines of one kind from others: 0 is the broadest, and each breadth has the same
    share of the false alarms. A shift of a line restarts those of larger breadth within it, so
    that one event is told once. `proof` are series in which a loss must show too. A line that
    does not `alarm` has its shifts found, but they are no alarm.
    """

    name: str
    members: tuple[int, ...]
    breadth: int = 0
    proof: tuple[int, ...] = ()
    alarms: bool = True
    mean: bool = False


@dataclass(frozen=True, slots=True)
class Shift:
    """A level that shifted: it `began` at one night and was `found` at that or a later one.

    `change` is the difference of the logarithms, below 0 for a loss, with its interval at 95 %.
    It is a loss or gain beyond doubt; `alarm` says that it also matters and was not told before.
    """

    line: int
    began: int
    found: int
    change: float
    low: float
    high: float
    reference_nights: int
    alarm: bool


@dataclass(frozen=True, slots=True)
class Band:
    """Where a line is expected the next night, at 95 %; logarithms.

    `nights` is how many the regime has without outliers. Below three nights nothing is known of
    the noise, and `low` and `high` are infinite. `tonight` is the last night's value, NaN where
    it has none, and `far` says that by itself it is beyond the limit of an alarm: no shift yet.
    """

    nights: int
    began: int
    center: float
    low: float
    high: float
    tonight: float
    far: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """All shifts in the order in which they were found, and a band for each line."""

    shifts: tuple[Shift, ...]
    bands: tuple[Band, ...]


def find_shifts(values: Floats, lines: Sequence[Line], margin: float = 0.02) -> Found:
    """Walk through the nights as they came, each judged by what was known then.

    `margin` is the relative loss that matters. Smaller losses add up until they do.
    """
    watch = _Watch(values, lines, math.log1p(margin))
    for night in range(len(values)):
        watch.judge(night)
    return Found(tuple(watch.shifts), tuple(watch.bands()))


def limit_probability(lines: Sequence[Line]) -> Floats:
    """Tell each line's p: how likely a single test of it may be wrong."""
    breadths = [line.breadth for line in lines]
    alike = np.array([breadths.count(breadth) for breadth in breadths], dtype=float)
    return FALSE_ALARMS / (HORIZON * LOOKS * alike * max(1, len(set(breadths))))


class _Watch:
    """The state of the walk: for each line where its regime began, and what came before it."""

    def __init__(self, values: Floats, lines: Sequence[Line], margin: float) -> None:
        self._values = values
        self._lines = lines
        self._margin = margin
        self._p = limit_probability(lines)
        kinds, self._kind = np.unique(self._p, return_inverse=True)
        freedoms = np.arange(1, len(values) + 2)
        self._limits = stdtrit(freedoms, 1 - kinds[:, None])
        steps = np.arange(1, WINDOW + 1)[:, None]
        self._uneven = fdtri(steps, freedoms, 1 - _UNEVEN)
        self._began = np.zeros(len(lines), dtype=int)
        self._squares = np.zeros(len(lines))
        self._freedom = np.zeros(len(lines))
        self._untold = np.zeros(len(lines))
        self.shifts: list[Shift] = []

    def judge(self, night: int) -> None:
        """Test every line at the end of a night, the broadest first."""
        if night + 1 < LEAST_REFERENCE + LEAST_AFTER:
            return
        y = line_values(self._values[: night + 1], self._lines)
        best = self._largest(y)
        for line in sorted(best, key=lambda number: self._lines[number].breadth):
            if best[line] >= self._began[line] + LEAST_REFERENCE:
                self._shift(y, line, best[line], night)

    def bands(self) -> Iterator[Band]:
        """Say where each line is expected, from the nights before the last one."""
        y = line_values(self._values, self._lines)
        reference = y[:-1]
        kept = self._kept(reference) if len(reference) else np.isfinite(reference)
        for line in range(len(self._lines)):
            yield self._band(y[:, line], kept[:, line], line)

    def _band(self, y: Floats, kept: Bools, line: int) -> Band:
        tonight = float(y[-1]) if len(y) else math.nan
        began = int(self._began[line])
        known = y[:-1][kept]
        n = len(known)
        if n == 0:
            return Band(0, began, math.nan, -math.inf, math.inf, tonight)
        center = float(known.mean())
        freedom = n - 1 + self._freedom[line]
        if n < LEAST_AFTER or freedom < 2:
            return Band(n, began, center, -math.inf, math.inf, tonight)
        squares = float(((known - center) ** 2).sum()) + self._squares[line]
        spread = _spread(squares, freedom) * math.sqrt(1 + 1 / n)
        half = float(stdtrit(freedom, (1 + _BAND) / 2)) * spread
        limit = float(stdtrit(freedom, 1 - self._p[line])) * spread
        far = n >= LEAST_REFERENCE and center - tonight > max(limit, self._margin)
        return Band(n, began, center, center - half, center + half, tonight, far)

    def _kept(self, y: Floats) -> Bools:
        """Mark the nights of each line's regime that are no outliers."""
        nights = np.arange(len(y))[:, None]
        return without_outliers(y, np.isfinite(y) & (nights >= self._began))

    def _largest(self, y: Floats) -> dict[int, int]:
        """Find the lines that signal, each with the night at which its change began."""
        kept = self._kept(y)
        top = np.zeros(len(self._lines))
        where = np.full(len(self._lines), -1)
        last = len(y) - LEAST_AFTER
        for began in range(max(LEAST_REFERENCE, len(y) - WINDOW), last + 1):
            score = np.abs(self._score(y, kept, began))
            better = score > top
            top[better], where[better] = score[better], began
        present = np.isfinite(y[-1])
        return {int(line): int(where[line]) for line in np.flatnonzero((top > 1) & present)}

    def _score(self, y: Floats, kept: Bools, began: int) -> Floats:
        """T over its limit for a change at one night; 0 where a line can't be tested."""
        n, center, squares = _moments(y[:began], kept[:began])
        freedom = n - 1 + self._freedom
        fit = (n >= LEAST_REFERENCE) & np.isfinite(y[began])
        safe = np.where(fit, freedom, 1).astype(int)
        spread = np.maximum(LEAST_SPREAD, np.sqrt((squares + self._squares) / safe))
        limit = self._limits[self._kind, safe - 1]
        after = center - y[began:]
        most = CLIP * limit * spread
        valid = np.isfinite(after)
        w = valid.sum(axis=0)
        total = np.where(valid, np.clip(after, -most, most), 0.0).sum(axis=0)
        fit &= w >= LEAST_AFTER
        w = np.where(fit, w, LEAST_AFTER)
        _, _, scatter = _moments(after, valid)
        fit &= scatter / (w - 1) / spread**2 <= self._uneven[w - 2, safe - 1]
        score: Floats = total / w / (spread * np.sqrt(1 / np.where(fit, n, 1) + 1 / w) * limit)
        return np.where(fit, score, 0.0)

    def _shift(self, y: Floats, line: int, began: int, night: int) -> None:
        """Note a shift, and let the regime of the line and of those within it begin anew."""
        kept = self._kept(y)[:, line]
        before = y[:began, line][kept[:began]]
        after = y[began:, line]
        after = after[np.isfinite(after)]
        change = float(after.mean() - before.mean())
        squares = float(((before - before.mean()) ** 2).sum()) + self._squares[line]
        freedom = len(before) - 1 + self._freedom[line]
        error = _spread(squares, freedom) * math.sqrt(1 / len(before) + 1 / len(after))
        half = float(stdtrit(freedom, (1 + _BAND) / 2)) * error
        alarm = self._tell(line, change, began, night)
        found = (change, change - half, change + half, len(before), alarm)
        self.shifts.append(Shift(line, began, night, *found))
        for other in self._within(line):
            self._restart(y, other, began)

    def _tell(self, line: int, change: float, began: int, night: int) -> bool:
        """Add up losses that were too small to tell; a gain makes up for them."""
        self._untold[line] = max(0.0, self._untold[line] - change)
        if self._untold[line] < self._margin or not self._proven(line, began, night):
            return False
        self._untold[line] = 0.0
        return self._lines[line].alarms

    def _proven(self, line: int, began: int, night: int) -> bool:
        proof = list(self._lines[line].proof)
        if not proof:
            return True
        whole = Line("", tuple(proof))
        y = line_values(self._values[: night + 1], [whole])[:, 0]
        start = int(self._began[line])
        before, after = (part[np.isfinite(part)] for part in (y[start:began], y[began:]))
        if not len(before) or not len(after):
            return False
        return bool(np.median(before) - np.median(after) >= self._margin / 2)

    def _within(self, line: int) -> Iterator[int]:
        mine = set(self._lines[line].members)
        for number, other in enumerate(self._lines):
            narrower = other.breadth > self._lines[line].breadth
            if number == line or (narrower and mine.issuperset(other.members)):
                yield number

    def _restart(self, y: Floats, line: int, began: int) -> None:
        kept = self._kept(y)[:began, line : line + 1]
        n, _, squares = _moments(y[:began, line : line + 1], kept)
        if n[0] > 1:
            self._squares[line] += squares[0]
            self._freedom[line] += n[0] - 1
        self._began[line] = max(began, self._began[line])


def line_values(values: Floats, lines: Sequence[Line]) -> Floats:
    """Work out each line's value a night from what was known at the last of these nights.

    A line of several series is the median (or mean) of their deviations, each from its own median
    over the nights; it has no value where fewer than two thirds of the series that were measured
    in the last night, and long enough before, have one.
    """
    found = np.full((len(values), len(lines)), np.nan)
    if not len(values):
        return found
    present = np.isfinite(values)
    usable = present[-1] & (present.sum(axis=0) > LEAST_REFERENCE)
    deviations = values - _median(values, axis=0)
    for number, line in enumerate(lines):
        if len(line.members) == 1:
            found[:, number] = values[:, line.members[0]]
            continue
        members = [column for column in line.members if usable[column]]
        if not members:
            continue
        enough = present[:, members].mean(axis=1) >= _COMPLETE
        middle = np.nanmean if line.mean else _median
        found[enough, number] = middle(deviations[np.ix_(enough, members)], axis=1)
    return found


def without_outliers(y: Floats, kept: Bools) -> Bools:
    """Leave out the nights that the generalized ESD test names outliers, column by column.

    R_i = max |y - mean| / s of what is left, against
    (m - 1) t / sqrt((m - 2 + t²) m), t = Student's quantile at 1 - 0.001 / (2 m) with m - 2
    degrees of freedom and m values left; the largest i with R_i beyond it is how many there are.
    At most four, and at most one in eight nights.
    """
    left, removed = kept.copy(), kept.copy()
    columns = np.arange(y.shape[1])
    limits = _outlier_limits(len(y))
    for number in range(1, _MOST_OUTLIERS + 1):
        m, center, squares = _moments(y, left)
        fit = (m >= _NIGHTS_PER_OUTLIER * number) & (squares > 0)
        if not fit.any():
            break
        safe = np.where(fit, m, _NIGHTS_PER_OUTLIER).astype(int)
        away = np.where(left, np.abs(y - center), -1.0)
        worst = away.argmax(axis=0)
        ratio = away[worst, columns] / np.sqrt(np.where(fit, squares, 1.0) / (safe - 1))
        left[worst[fit], columns[fit]] = False
        beyond = fit & (ratio > limits[safe])
        removed[:, beyond] = left[:, beyond]
    return removed


@cache
def _outlier_limits(most: int) -> Floats:
    """The limits of the generalized ESD test for up to so many values left, by that number."""
    m = np.arange(3, max(most, _NIGHTS_PER_OUTLIER) + 1)
    t = stdtrit(m - 2, 1 - _OUTLIER / (2 * m))
    known = (m - 1) * t / np.sqrt((m - 2 + t**2) * m)
    return np.concatenate([np.full(3, np.inf), known])


def _spread(squares: float, freedom: float) -> float:
    return max(LEAST_SPREAD, math.sqrt(squares / freedom))


def _moments(y: Floats, kept: Bools) -> tuple[Floats, Floats, Floats]:
    """Count, mean and sum of squared deviations of what is kept, column by column."""
    n = kept.sum(axis=0).astype(float)
    center = np.where(kept, y, 0.0).sum(axis=0) / np.maximum(n, 1)
    squares = np.where(kept, (y - center) ** 2, 0.0).sum(axis=0)
    return n, center, squares


def _median(values: Floats, axis: int) -> Floats:
    """The median without NaN, as `numpy.nanmedian` has it, in a tenth of its time."""
    ordered = np.sort(values, axis=axis)  # NaN comes last
    n = np.isfinite(values).sum(axis=axis, keepdims=True)
    low, high = (np.maximum(n - 1, 0) // 2, n // 2)
    high = np.minimum(high, values.shape[axis] - 1)
    both = np.take_along_axis(ordered, low, axis) + np.take_along_axis(ordered, high, axis)
    return np.squeeze(both / 2, axis=axis)
