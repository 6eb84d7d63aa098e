"""Means and ratios with their uncertainty.

One value is one *run*: the metric of one repeat of one level on one launch. The requests of a
run depend on each other (they shared the server's batches and its temperature), so pooling them
would make every difference look certain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


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


def ratio(
    values: Sequence[float], reference: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio | None:
    """Estimate the ratio of two means from the logarithms of the runs.

    value = exp(mean ln x - mean ln y), that is the ratio of the geometric means; its interval is
    Welch's t interval of the difference of the logarithms, taken back by exp. It assumes neither
    equal spread nor equal numbers of runs, and swapping the sides gives exactly the reciprocal.

    None where a side has no positive value, or any that isn't: such a ratio means nothing. No
    interval where a side has a single run. Identical runs give an interval of width 0.
    """
    mine, theirs = (_logarithms(side) for side in (values, reference))
    if not mine or not theirs:
        return None
    difference = _mean(mine) - _mean(theirs)
    interval = None
    if len(mine) > 1 and len(theirs) > 1:
        half = _welch_half_width(mine, theirs, confidence)
        interval = Interval(_exp(difference - half), _exp(difference + half))
    return Ratio(_exp(difference), len(mine), len(theirs), interval)


def _welch_half_width(a: Sequence[float], b: Sequence[float], confidence: float) -> float:
    """Half the width of Welch's interval; degrees of freedom after Welch and Satterthwaite."""
    of_a, of_b = _variance(a) / len(a), _variance(b) / len(b)
    if of_a + of_b == 0:
        return 0.0
    share = of_a / (of_a + of_b)  # of the variance; squares of the variances could underflow
    freedom = 1 / (share**2 / (len(a) - 1) + (1 - share) ** 2 / (len(b) - 1))
    return _t_quantile(freedom, confidence) * math.sqrt(of_a + of_b)


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
