"""Mean, spread and percentiles of many values, some of which stand for several.

A gap of a chunk of three tokens is three gaps between tokens, each a third of it. Kept apart by
their weight and ordered once, the same values tell of chunks and of tokens, whatever their number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_BLOCK = 1 << 16

PERCENTILES = {"median": 50, "p90": 90, "p95": 95, "p99": 99}


@dataclass(frozen=True, slots=True)
class Part:
    """Values in ascending order, each of which counts `weight` times; at least one of each."""

    ordered: Values
    weight: int = 1

    @property
    def count(self) -> int:
        """How many values it stands for."""
        return len(self.ordered) * self.weight


def whole(values: NDArray[np.int64] | Values) -> list[Part]:
    """Take values of equal weight; nothing of none."""
    ordered = values.astype(np.float64)
    ordered.sort()
    return [Part(ordered)] if ordered.size else []


def by_number(
    values: Values, numbers: NDArray[np.int64], counted: NDArray[np.bool_]
) -> dict[int, Part]:
    """Put those values together that are counted and have the same number, each part ordered."""
    found = {}
    for number in np.flatnonzero(np.bincount(numbers)):
        chosen = numbers == number
        chosen &= counted
        ordered = values[chosen]
        if ordered.size:
            ordered.sort()
            found[int(number)] = Part(ordered)
    return found


def statistics(parts: Sequence[Part]) -> dict[str, float]:
    """Mean, population standard deviation, median, p90, p95 and p99; nothing of nothing."""
    count = sum(part.count for part in parts)
    if not count:
        return {}
    mean = sum(part.weight * float(part.ordered.sum()) for part in parts) / count
    squares = (part.weight * _squares(part.ordered, mean) for part in parts)
    found = {"mean": mean, "std": math.sqrt(sum(squares) / count)}
    return found | {name: percentile(parts, percent) for name, percent in PERCENTILES.items()}


def percentile(parts: Sequence[Part], percent: float) -> float:
    """Interpolate linearly between ranks, as `numpy.percentile` and bench_serving do."""
    count = sum(part.count for part in parts)
    rank = (count - 1) * percent / 100
    low = int(rank)
    value = _at(parts, low)
    return value if low == count - 1 else value + (_at(parts, low + 1) - value) * (rank - low)


def _at(parts: Sequence[Part], rank: int) -> float:
    """The value at a rank, counted from 0, of all parts together."""
    if len(parts) == 1:
        return float(parts[0].ordered[rank // parts[0].weight])
    low = math.nextafter(min(float(part.ordered[0]) for part in parts), -math.inf)
    high = max(float(part.ordered[-1]) for part in parts)
    while low < (middle := low + (high - low) / 2) < high:
        reached = sum(int(_up_to(part, middle)) * part.weight for part in parts)
        low, high = (low, middle) if reached > rank else (middle, high)
    return high


def _up_to(part: Part, value: float) -> np.intp:
    return part.ordered.searchsorted(value, side="right")


def _squares(ordered: Values, mean: float) -> float:
    """Sum the squares about a mean, in blocks that the processor's cache holds."""
    blocks = (ordered[at : at + _BLOCK] - mean for at in range(0, len(ordered), _BLOCK))
    return math.fsum(float(np.square(block, out=block).sum()) for block in blocks)
