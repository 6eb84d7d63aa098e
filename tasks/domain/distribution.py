"""Mean, spread and percentiles of many values, some of which stand for several.

A gap of a chunk of three tokens is three gaps between tokens, each a third of it. Kept apart by
that number and ordered once, the same values tell of chunks and of tokens, whatever their number.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Whole = NDArray[np.uint32] | NDArray[np.int64]
Ordered = Whole | Values
"""Values in ascending order."""

_BLOCK = 1 << 16
_MOST_NARROW = int(np.iinfo(np.uint32).max)

PERCENTILES = {"median": 50, "p90": 90, "p95": 95, "p99": 99}
STATISTICS = ("mean", "std", *PERCENTILES)


@dataclass(frozen=True, slots=True)
class Part:
    """Values in ascending order, at least one, each split evenly into `split` values.

    Where several parts make one distribution, all are of whole numbers.
    """

    ordered: Ordered
    split: int = 1

    @property
    def count(self) -> int:
        """How many values it stands for."""
        return len(self.ordered) * self.split

    def up_to(self, value: int) -> int:
        """How many of the whole numbers, unsplit, are at most `value`."""
        if value >= self.ordered[-1]:
            return len(self.ordered)
        if value < self.ordered[0]:
            return 0
        # A needle of another type would have the whole of them converted.
        return int(self.ordered.searchsorted(self.ordered.dtype.type(value), side="right"))


def narrow(values: NDArray[np.int64]) -> Whole:
    """Take whole numbers in 32 bits where they fit: they are put in order twice as fast."""
    fit = bool(values.size) and values.min() >= 0 and values.max() <= _MOST_NARROW
    return values.astype(np.uint32) if fit else values


def in_order(pieces: Sequence[Whole]) -> Whole:
    """Put whole numbers together and in order."""
    values = np.concatenate(pieces)
    values.sort()
    return cast(Whole, values)


def whole(values: NDArray[np.int64] | Values) -> list[Part]:
    """Take values that stand for themselves; nothing of none."""
    ascending = values.astype(np.float64)
    ascending.sort()
    return [Part(ascending)] if ascending.size else []


def statistics(parts: Sequence[Part], wanted: Sequence[str] = STATISTICS) -> dict[str, float]:
    """Mean, population standard deviation `std`, and percentiles; nothing of nothing."""
    count = sum(part.count for part in parts)
    if not count:
        return {}
    mean = sum(part.ordered.sum().item() for part in parts) / count
    found = {"mean": mean}
    if "std" in wanted:
        squares = (_squares(part.ordered, mean * part.split) / part.split for part in parts)
        found["std"] = math.sqrt(sum(squares) / count)
    asked = {name: percent for name, percent in PERCENTILES.items() if name in wanted}
    return found | {name: percentile(parts, percent) for name, percent in asked.items()}


def percentile(parts: Sequence[Part], percent: float) -> float:
    """Interpolate linearly between ranks, as `numpy.percentile` and bench_serving do."""
    count = sum(part.count for part in parts)
    rank = (count - 1) * percent / 100
    low = int(rank)
    value = _at(parts, low)
    return value if low == count - 1 else value + (_at(parts, low + 1) - value) * (rank - low)


def _at(parts: Sequence[Part], rank: int) -> float:
    """The value at a rank, counted from 0, of all parts together.

    The middle of the longest part is held against all; it is the value, or what lies on its wrong
    side falls away.
    """
    if len(parts) == 1:
        return float(parts[0].ordered[rank // parts[0].split]) / parts[0].split
    longest = max(parts, key=lambda part: len(part.ordered))
    middle, split = int(longest.ordered[len(longest.ordered) // 2]), longest.split
    reached = [part.up_to(middle * part.split // split) for part in parts]
    through = _counts(parts, reached)
    if rank >= through:
        above = (part.ordered[at:] for part, at in zip(parts, reached, strict=True))
        return _at(_filled(parts, above), rank - through)
    below = [part.up_to(-(-middle * part.split // split) - 1) for part in parts]
    if rank < _counts(parts, below):
        before = (part.ordered[:at] for part, at in zip(parts, below, strict=True))
        return _at(_filled(parts, before), rank)
    return middle / split


def _counts(parts: Sequence[Part], values: Sequence[int]) -> int:
    return sum(part.split * count for part, count in zip(parts, values, strict=True))


def _filled(parts: Sequence[Part], values: Iterable[Ordered]) -> list[Part]:
    """Give the parts those values, and leave out the ones that have none."""
    found = zip(parts, values, strict=True)
    return [Part(ordered, part.split) for part, ordered in found if len(ordered)]


def _squares(values: Ordered, mean: float) -> float:
    """Sum the squares about a mean, in blocks that the processor's cache holds."""
    blocks = (values[at : at + _BLOCK] - mean for at in range(0, len(values), _BLOCK))
    return math.fsum(float(np.square(block, out=block).sum()) for block in blocks)
