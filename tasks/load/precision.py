"""Whether a level that still runs is known well enough: batch means, looked at a few times.

Neighbouring values of one run depend on each other (requests share the server's batch), so their
plain variance says too little. The run is cut into a few long batches, whose means are close to
independent; the interval is Student's over those (Conway 1963; Law, Simulation Modeling and
Analysis, 9.5.3). A batch lasts at least as long as a request, so that the rhythm of a closed loop,
whose requests begin and end together, is within the batches and not between them.

Whoever looks again and again, and stops at the first interval that is narrow by chance, is wrong
more often than the interval says. So look k has the error 0.05 / (k (k + 1)), which adds up to
0.05 over any number of looks, and there are few: each when a quarter more has come.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from settings.workload import Precision

BATCHES = 10
ERROR = 0.05
_GROWTH = 1.25

_COUNTED = {"output_throughput": "reads", "request_throughput": "done"}


def half_width(values: Sequence[float], error: float) -> float:
    """Half of the confidence interval of a mean, as a share of it, by the means of ten batches.

    The oldest values are left out where ten don't divide them; infinite where there are too few.
    """
    from scipy.special import stdtrit  # not for everybody: a fifth of a second

    size = len(values) // BATCHES
    if not size:
        return math.inf
    means = np.array(values[-size * BATCHES :], np.float64).reshape(BATCHES, size).mean(axis=1)
    deviation = float(means.std(ddof=1)) / math.sqrt(BATCHES)
    mean = abs(float(means.mean()))
    width = float(stdtrit(BATCHES - 1, 1 - error / 2)) * deviation
    return width / mean if mean else math.inf


@dataclass(slots=True)
class Looks:
    """What came of a level so far, and the looks that were taken at it.

    `slots` are those of a closed loop, 0 of an open one. `width` is the last half interval.
    """

    precision: Precision
    slots: int
    output_lens: Sequence[int]
    width: float = math.inf
    looks: int = 0
    seen: int = 0
    totals: list[tuple[float, float]] = field(default_factory=list)

    def enough(self, progress: Sequence[Mapping[str, Any]], ended: Sequence[Sequence[int]]) -> bool:
        """Look, if it is time for it: at what each process last told, and at the answers.

        An answer is its index, and the ns from its due time to its first token and to its end.
        """
        elapsed_s = max((each.get("elapsed_s", 0.0) for each in progress), default=0.0)
        done = sum(each.get("done", 0) for each in progress)
        counted = _COUNTED.get(self.precision.metric)
        if counted is not None:
            self._note(progress, elapsed_s, done, counted)
            count = len(self.totals) - 1
            least = BATCHES * self._ticks_per_request(progress, elapsed_s, done)
        else:
            count, least = len(ended) - self.slots, BATCHES * max(self.slots, 1)
        asked = self.precision
        too_early = elapsed_s < asked.min_duration or done < asked.min_requests
        if too_early or count < max(least, _GROWTH * self.seen):
            return False
        self.looks, self.seen = self.looks + 1, count
        values = self._rates() if counted else [self._latency(*a) for a in ended[self.slots :]]
        self.width = half_width(values, ERROR / (self.looks * (self.looks + 1)))
        return asked.within is not None and self.width <= asked.within

    def _note(
        self, progress: Sequence[Mapping[str, Any]], elapsed_s: float, done: int, counted: str
    ) -> None:
        """Keep the count so far, from the first answer on: the start is over then."""
        if done and (not self.totals or elapsed_s > self.totals[-1][0]):
            total = sum(each.get(counted, 0) for each in progress)
            self.totals.append((elapsed_s, total))

    def _rates(self) -> list[float]:
        return [
            (after - before) / (end - start)
            for (start, before), (end, after) in pairwise(self.totals)
        ]

    def _ticks_per_request(
        self, progress: Sequence[Mapping[str, Any]], elapsed_s: float, done: int
    ) -> int:
        """How many words of the processes a request lasts, by Little's law; at least one."""
        in_flight = sum(each.get("in_flight", 0) for each in progress)
        ticks = len(self.totals) - 1
        return max(1, math.ceil(in_flight * ticks / done)) if done and elapsed_s else 1

    def _latency(self, index: int, first_ns: int, end_ns: int) -> float:
        match self.precision.metric:
            case "mean_ttft_ms":
                return float(first_ns)
            case "mean_tpot_ms":
                return (end_ns - first_ns) / max(1, self.output_lens[index] - 1)
        return float(end_ns)
