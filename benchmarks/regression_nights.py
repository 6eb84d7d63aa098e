"""How often a night cries wolf, and how soon it tells of a real loss.

    python benchmarks/regression_nights.py [--histories 300] [--seed 1]

Simulated are the nights of one sweep: 8 configurations, 3 levels, the throughput of every cell
with 1.5 % night-to-night noise, p99 TTFT at the decisive level with 5 %. Each history goes through
the judgement that ends a real night. Noise is Gaussian and each cell's own unless the line says
otherwise; what all cells share in a night no pooling can average out, so that such a board is no
better than a single cell. What a single cell can show at best: against a known level, three nights
that are 2 standard deviations lower make 3.5 standard errors, and a limit that cries wolf once in
100 histories of 60 nights lies at 3.6.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from settings.sweep import Sweep
from tasks.results.cells import Cell
from tasks.results.nights import Board, Series
from tasks.results.records import SweepRecord, SweepState
from tasks.results.regression import judge_nights

Matrix = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Matrix]

CONFIGURATIONS = 8
LEVELS = (1, 16, 64)
NIGHTS = 60
NOISE = 0.015
TTFT_NOISE = 0.05
LOSS = 0.03
WITHIN = (2, 3, 5, 10)
_FIRST = 20

SWEEP = Sweep.model_validate(
    {
        "name": "simulated",
        "server": {"model_path": "/m"},
        "axes": {"cuda_graph_max_bs": [8 * (n + 1) for n in range(CONFIGURATIONS)]},
        "workloads": [{"name": "chat", "concurrency": list(LEVELS), "requests": 320}],
        "objective": {"metric": "output_throughput", "concurrency": LEVELS[-1]},
        "constraints": [{"metric": "p99_ttft_ms", "max": 2000}],
    }
)


@dataclass(frozen=True)
class Case:
    """One kind of history: its noise, and which share of the board loses 3 % in some night."""

    title: str
    noise: Noise
    lossy: tuple[int, ...] = ()
    configurations: int = CONFIGURATIONS


def independent(random: np.random.Generator, nights: int, cells: int) -> Matrix:
    """Draw Gaussian noise, every cell's own."""
    return random.normal(0, 1, (nights, cells))


def heavy_tailed(random: np.random.Generator, nights: int, cells: int) -> Matrix:
    """Draw Student's noise with 4 degrees of freedom, scaled to the same deviation."""
    return random.standard_t(4, (nights, cells)) / np.sqrt(2)


def half_shared(random: np.random.Generator, nights: int, cells: int) -> Matrix:
    """Let half of the variance be the night's, the same in all cells."""
    own, night = independent(random, nights, cells), independent(random, nights, 1)
    return np.asarray((own + night) / np.sqrt(2))


def shared(random: np.random.Generator, nights: int, cells: int) -> Matrix:
    """Let the whole variance be the night's."""
    return np.repeat(independent(random, nights, 1), cells, axis=1)


def with_bad_nights(random: np.random.Generator, nights: int, cells: int) -> Matrix:
    """Let the whole board be 10 % slower in three single nights."""
    noise = independent(random, nights, cells)
    noise[random.choice(nights // 2, 3, replace=False) * 2] -= 0.1 / NOISE
    return noise


def with_gaps(random: np.random.Generator, nights: int, cells: int) -> Matrix:
    """Leave out one value in ten, and some nights altogether."""
    noise = independent(random, nights, cells)
    noise[random.random(noise.shape) < 0.1] = np.nan
    noise[random.random(nights) < 0.05] = np.nan
    return noise


EVERYWHERE = tuple(range(CONFIGURATIONS))
QUIET = (
    Case("noise of each cell", independent),
    Case("heavy tails", heavy_tailed),
    Case("half of it shared", half_shared),
    Case("all of it shared", shared),
    Case("three nights 10 % slower", with_bad_nights),
    Case("gaps", with_gaps),
)
LOSSY = (
    Case("everywhere", independent, EVERYWHERE),
    Case("everywhere, heavy tails", heavy_tailed, EVERYWHERE),
    Case("everywhere, three bad nights", with_bad_nights, EVERYWHERE),
    Case("everywhere, gaps", with_gaps, EVERYWHERE),
    Case("everywhere, 2 configurations", independent, (0, 1), configurations=2),
    Case("everywhere, half of the noise shared", half_shared, EVERYWHERE),
    Case("in the baseline alone, all its levels", independent, (0,)),
)


def board(case: Case, random: np.random.Generator, nights: int, lost_at: int | None) -> Board:
    """Simulate the nights; `lost_at` is the first night of the loss."""
    series, columns = [], []
    noise = case.noise(random, nights, case.configurations * (len(LEVELS) + 1))
    for number in range(case.configurations):
        name, baseline = f"t{number}", number == 0
        for level in LEVELS:
            cell = Cell("chat", f"c{level}")
            series.append(Series(name, cell, "output_throughput", "", baseline=baseline))
            value = level * 40 * np.exp(NOISE * noise[:, len(columns)])
            if lost_at is not None and number in case.lossy:
                value[lost_at:] *= 1 - LOSS
            columns.append(value)
        series.append(
            Series(name, Cell("chat", f"c{LEVELS[-1]}"), "p99_ttft_ms", "", baseline=baseline)
        )
        columns.append(500 * np.exp(TTFT_NOISE * noise[:, len(columns)]))
    records = tuple(
        SweepRecord(f"{night:03}", SWEEP, SweepState.COMPLETED, night, night)
        for night in range(nights)
    )
    return Board(records, tuple(series), np.array(columns).T)


def alarms(case: Case, seed: int, nights: int, lost_at: int | None = None) -> list[int]:
    """Tell the nights of a history that end as a regression."""
    simulated = board(case, np.random.default_rng(seed), nights, lost_at)
    return [int(shift.found.sweep_id) for shift in judge_nights(simulated, SWEEP)[0] if shift.alarm]


def delays(case: Case, seeds: range) -> Iterator[int | None]:
    """How many nights a loss lasted before it was told, the night itself included."""
    for seed in seeds:
        lost_at = int(np.random.default_rng(seed).integers(_FIRST, NIGHTS - max(WITHIN)))
        found = alarms(case, seed, lost_at + max(WITHIN), lost_at)
        told = [night for night in found if night >= lost_at]
        yield told[0] - lost_at + 1 if told else None


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.histories)
    print(f"no loss, {NIGHTS} nights: histories with a false alarm, of {len(seeds)}")
    for case in QUIET:
        false = sum(bool(alarms(case, seed, NIGHTS)) for seed in seeds)
        print(f"  {case.title:40} {false:5}  {100 * false / len(seeds):5.1f} %", flush=True)
    print(f"a loss of {LOSS:.0%} from night {_FIRST} or later: told within", end="")
    print("".join(f"{nights:7}" for nights in WITHIN), "nights")
    for case in LOSSY:
        found = list(delays(case, seeds))
        shares = [sum(d is not None and d <= n for d in found) / len(found) for n in WITHIN]
        print(f"  {case.title:49}", "".join(f"{share:7.0%}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
