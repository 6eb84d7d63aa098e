"""Means and ratios with their uncertainty.

One value is one *run*: the metric of one repeat of one level on one launch. The requests of a
run depend on each other (they shared the server's batches and its temperature), so pooling them
would make every difference look certain.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

CONFIDENCE = 0.95

Term = tuple[float, Sequence[float]]
"""A part of a contrast: its factor, and the runs."""

_ENOUGH_RUNS = 2
"""Runs of a side from which its own spread is trusted before a pooled one."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` runs; `interval` is None where one run says nothing of the spread."""

    mean: float
    n: int
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as large as its reference something is; `n` runs against `n_reference`."""

    value: float
    n: int
    n_reference: int
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Noise:
    """How much the logarithm of a metric spreads from run to run, known elsewhere.

    `spread` is a standard deviation (0.015 is 1.5 %), `freedom` the degrees of freedom behind it.
    """

    spread: float
    freedom: float


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate | None:
    """Estimate the mean: mean ± t(n-1) · s / √n, Student's interval.

    None for no value; no interval for one. NaN and infinities are not measurements and left out.
    """
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return None
    mean = math.fsum(kept) / len(kept)
    if len(kept) < 2:
        return Estimate(mean, len(kept))
    half = _t_quantile(len(kept) - 1, confidence) * math.sqrt(_variance(kept) / len(kept))
    return Estimate(mean, len(kept), Interval(mean - half, mean + half))


def pooled_noise(groups: Iterable[Sequence[float]]) -> Noise | None:
    """Pool the relative spread of groups of runs that each had their own mean.

    spread² = sum of squares of ln x about the group's mean / degrees of freedom, the latter being
    runs - 1 a group: the residual variance of a one-way analysis of variance. None with fewer than
    two degrees of freedom.
    """
    kept = [logs for logs in map(_logarithms, groups) if len(logs) > 1]
    freedom = sum(len(logs) - 1 for logs in kept)
    if freedom < 2:
        return None
    squares = math.fsum(_variance(logs) * (len(logs) - 1) for logs in kept)
    return Noise(math.sqrt(squares / freedom), freedom)


def noise_over_nights(series: Iterable[Sequence[float]]) -> Noise | None:
    """Pool the relative spread from night to night of series whose levels may have shifted.

    spread² = sum of (ln x[i+1] - ln x[i])² / 2 / differences, von Neumann's mean square successive
    difference, which a shift enters once and not for ever. For n nights it is as good as
    2 (n - 1)² / (3 n - 4) degrees of freedom (its variance for Gaussian noise). None below two.
    """
    squares, count, freedom = 0.0, 0, 0.0
    for logs in map(_logarithms, series):
        steps = [(later - earlier) ** 2 / 2 for earlier, later in pairwise(logs)]
        if steps:
            squares, count = squares + math.fsum(steps), count + len(steps)
            freedom += 2 * len(steps) ** 2 / (3 * len(logs) - 4)
    return Noise(math.sqrt(squares / count), freedom) if freedom >= 2 else None


def ratio(
    values: Sequence[float],
    reference: Sequence[float],
    confidence: float = CONFIDENCE,
    noise: Noise | None = None,
) -> Ratio | None:
    """Estimate the ratio of two means from the logarithms of the runs.

    value = exp(mean ln x - mean ln y), that is the ratio of the geometric means; its interval is
    Welch's t interval of the difference of the logarithms, taken back by exp. It assumes neither
    equal spread nor equal numbers of runs, and swapping the sides gives exactly the reciprocal.

    `noise` takes the place of the sides' own spread where one of them has a single run,
    which tells no spread: half width = t(freedom) * spread * sqrt(1/n + 1/n_reference).

    None where a side has no positive value, or any that isn't: such a ratio means nothing. No
    interval where a side has a single run and no noise is known. Identical runs give an interval
    of width 0.
    """
    return _as_ratio(_difference(values, reference, noise), confidence)


def contrast(
    terms: Sequence[Term], confidence: float = CONFIDENCE, noise: Noise | None = None
) -> Ratio | None:
    """Estimate a product of powers of means, such as a mean over several ratios.

    value = exp(sum of c * mean ln x), a term being c and the runs x; the c add up to 0, so that it
    has no unit. Half width on the logarithms = t(freedom) * spread * sqrt(sum of c² / runs): the
    contrast of a one-way analysis of variance. `n` counts the runs with c > 0, `n_reference` those
    with c < 0. None without a term, or where one has no positive value; no interval without noise.
    """
    return _as_ratio(_contrast(terms, noise), confidence)


def contrast_p_value(terms: Sequence[Term], noise: Noise | None) -> float | None:
    """Tell how likely so large a contrast is where there is none, two-sided; None as `p_value`."""
    return _chance(_contrast(terms, noise))


def p_value(
    values: Sequence[float], reference: Sequence[float], noise: Noise | None = None
) -> float | None:
    """Tell how likely so large a ratio is where there is no difference, two-sided.

    By the same t statistic as the interval of `ratio`; None where that has no interval.
    """
    return _chance(_difference(values, reference, noise))


def holm_confidences(
    p_values: Sequence[float | None], confidence: float = CONFIDENCE
) -> list[float]:
    """Tell the confidence of each interval so that `confidence` holds for all of them together.

    Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979): of m values the
    smallest is judged at α / m, the next at α / (m - 1), and so on until one is not significant;
    that one's level holds for it and all larger ones. None takes part in nothing.
    """
    alpha = 1 - confidence
    known = sorted((p, number) for number, p in enumerate(p_values) if p is not None)
    found = [confidence] * len(p_values)
    level = alpha
    stopped = False
    for rank, (p, number) in enumerate(known):
        if not stopped:
            level = alpha / (len(known) - rank)
            stopped = p > level
        found[number] = 1 - level
    return found


@dataclass(frozen=True, slots=True)
class _Difference:
    """A difference of mean logarithms; `freedom` is None where its error is unknown."""

    value: float
    n: int
    n_reference: int
    error: float = 0.0
    freedom: float | None = None


def _as_ratio(found: _Difference | None, confidence: float) -> Ratio | None:
    """Take a difference of logarithms back to a ratio with its interval."""
    if found is None:
        return None
    interval = None
    if found.freedom is not None:
        half = found.error and _t_quantile(found.freedom, confidence) * found.error
        interval = Interval(_exp(found.value - half), _exp(found.value + half))
    return Ratio(_exp(found.value), found.n, found.n_reference, interval)


def _chance(found: _Difference | None) -> float | None:
    """Tell the two-sided p-value of a difference; None where its error is unknown."""
    if found is None or found.freedom is None:
        return None
    if found.error == 0:
        return 0.0 if found.value else 1.0
    from scipy.special import stdtr

    return float(2 * stdtr(found.freedom, -abs(found.value) / found.error))


def _contrast(terms: Sequence[Term], noise: Noise | None) -> _Difference | None:
    logs = [(factor, _logarithms(values)) for factor, values in terms]
    if not logs or not all(kept for _, kept in logs):
        return None
    value = math.fsum(factor * _mean(kept) for factor, kept in logs)
    above = sum(len(kept) for factor, kept in logs if factor > 0)
    below = sum(len(kept) for factor, kept in logs if factor < 0)
    if noise is None:
        return _Difference(value, above, below)
    error = noise.spread * math.sqrt(math.fsum(factor**2 / len(kept) for factor, kept in logs))
    return _Difference(value, above, below, error, noise.freedom)


def _difference(
    values: Sequence[float], reference: Sequence[float], noise: Noise | None
) -> _Difference | None:
    mine, theirs = (_logarithms(side) for side in (values, reference))
    if not mine or not theirs:
        return None
    sides = _mean(mine) - _mean(theirs), len(mine), len(theirs)
    fewest = min(len(mine), len(theirs))
    if noise is not None and fewest < _ENOUGH_RUNS:
        error = noise.spread * math.sqrt(1 / len(mine) + 1 / len(theirs))
        return _Difference(*sides, error, noise.freedom)
    if fewest < 2:
        return _Difference(*sides)
    return _Difference(*sides, *_welch(mine, theirs))


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The standard error, and the degrees of freedom after Welch and Satterthwaite."""
    of_a, of_b = _variance(a) / len(a), _variance(b) / len(b)
    if of_a + of_b == 0:
        return 0.0, float(len(a) + len(b) - 2)
    share = of_a / (of_a + of_b)  # of the variance; squares of the variances could underflow
    freedom = 1 / (share**2 / (len(a) - 1) + (1 - share) ** 2 / (len(b) - 1))
    return math.sqrt(of_a + of_b), freedom


def _logarithms(values: Sequence[float]) -> list[float]:
    kept = [value for value in values if math.isfinite(value)]
    return [math.log(value) for value in kept] if all(value > 0 for value in kept) else []


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    """The unbiased variance: sum of squares / (n - 1)."""
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _t_quantile(freedom: float, confidence: float) -> float:
    """How many standard errors a two-sided interval reaches."""
    # scipy.special loads in a quarter of the time of scipy.stats and holds the same function.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))
