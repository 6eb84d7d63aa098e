"""Whether a run held still, from the time per token of its requests in the order of their ends.

| name | definition |
| --- | --- |
| `tpot_drift` | mean TPOT of the last quarter of the requests / that of the first quarter - 1 |
| `tpot_shift_ratio` | mean TPOT after / before a change of level that Pettitt's test finds |
| `tpot_shift_at_s` | when it was: the end of the last request before it - first intended send |

Requests of one moment share the server's batch, so they are judged in 20 blocks of equal number,
by their means. Of these, with ranks R, U(k) = 2 (R1 + … + Rk) - k (n + 1) and K = max |U|; chance
makes K so large with a probability of about 2 exp(-6 K² / (n³ + n²)) (Pettitt 1979), which must be
below 1 %. No figure of fewer than 40 requests within the steady window.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

BLOCKS = 20
LEAST_REQUESTS = 2 * BLOCKS
SURE = 0.01


@dataclass(frozen=True, slots=True)
class Paced:
    """Requests as they ended: when, in s of the run, and their time per token, of any unit."""

    ended_s: Values
    pace: Values


def steadiness(paced: Paced) -> dict[str, float]:
    """Tell drift, and change of level where there is one; nothing of too few requests."""
    count = len(paced.pace)
    if count < LEAST_REQUESTS:
        return {}
    quarter = count // 4
    first, last = float(paced.pace[:quarter].mean()), float(paced.pace[-quarter:].mean())
    if first <= 0:
        return {}
    found = {"tpot_drift": last / first - 1}
    bounds = np.linspace(0, count, BLOCKS + 1).astype(np.int64)
    means = np.add.reduceat(paced.pace, bounds[:-1]) / np.diff(bounds)
    before = change_point(means)
    if before is not None:
        at = int(bounds[before])
        after = float(paced.pace[at:].mean()) / float(paced.pace[:at].mean())
        found |= {"tpot_shift_ratio": after, "tpot_shift_at_s": float(paced.ended_s[at - 1])}
    return found


def change_point(values: Values) -> int | None:
    """Find after how many values their level changed, by Pettitt's test; None where it didn't."""
    count = len(values)
    if count < 2:
        return None
    scores = 2 * np.cumsum(_ranks(values)) - np.arange(1, count + 1) * (count + 1)
    most = int(np.abs(scores).argmax())
    chance = 2 * math.exp(-6 * float(scores[most]) ** 2 / (count**3 + count**2))
    return most + 1 if chance < SURE and most + 1 < count else None


def _ranks(values: Values) -> Values:
    """Rank from 1, equal values by the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(last - (counts - 1) / 2)[places]
