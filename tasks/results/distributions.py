"""How latencies are spread over the requests of a trial in one cell, from its raw requests."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tasks.domain.measurement import RequestOutcome
from tasks.results.cells import Cell

_NS_PER_MS = 1e6
_A_TENFOLD = 20
"""Points of a curve for each tenfold of rarity: from 90 % to 99 %, from 99 % to 99.9 %."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One latency of one trial: `points` are (share of all at most so slow, ms), ascending.

    The requests of all the cell's runs are pooled, which describes them and decides nothing.
    `count` is how many values there were.
    """

    latency: str
    points: tuple[tuple[float, float], ...]
    count: int


def distributions(requests: Path, cell: Cell) -> tuple[Distribution, ...]:
    """Read TTFT (a value a request) and ITL (a value a token); nothing where none are kept.

    As the metrics have them: TTFT from the intended send to the first text, ITL a chunk's gap
    divided among its tokens; warm-up and requests that didn't finish are left out.
    """
    if not requests.exists():
        return ()
    try:
        kept = _kept(requests, cell)
        found = [("ttft", _ttft(kept)), ("itl", _itl(kept))]
    except (OSError, pl.exceptions.PolarsError):
        return ()
    return tuple(
        Distribution(latency, tuple(_points(values)), len(values))
        for latency, values in found
        if len(values)
    )


def shares(count: int) -> Iterator[float]:
    """Choose where a curve over `count` values is looked at: ever closer towards the slowest."""
    last = math.ceil(_A_TENFOLD * math.log10(count)) if count > 1 else 0
    for step in range(last + 1):
        yield 1 - 10 ** (-step / _A_TENFOLD)


def _kept(requests: Path, cell: Cell) -> pl.DataFrame:
    wanted = (
        (pl.col("workload") == cell.workload)
        & (pl.col("level") == cell.level)
        & (pl.col("outcome") == RequestOutcome.FINISHED.value)
        & ~pl.col("warmup")
    )
    columns = ("intended_ns", "first_text_ns", "arrival_ns", "cumulative_tokens")
    return pl.scan_parquet(requests).filter(wanted).select(columns).collect()


def _ttft(kept: pl.DataFrame) -> pl.Series:
    return kept.select(
        (pl.col("first_text_ns") - pl.col("intended_ns")).drop_nulls() / _NS_PER_MS
    ).to_series()


def _itl(kept: pl.DataFrame) -> pl.Series:
    """A gap a token: each chunk's gap is divided among the tokens that it brought."""
    chunks = kept.select(
        gap=pl.col("arrival_ns").list.diff(null_behavior="drop"),
        tokens=pl.col("cumulative_tokens").list.diff(null_behavior="drop"),
    ).explode("gap", "tokens")
    each_ms = pl.col("gap") / pl.col("tokens").clip(1) / _NS_PER_MS
    gaps = chunks.drop_nulls().select(each_ms.repeat_by("tokens")).to_series()
    return gaps.explode().drop_nulls()


def _points(values: pl.Series) -> Iterator[tuple[float, float]]:
    ordered = values.sort()
    for share in shares(len(ordered)):
        found = ordered.quantile(share, interpolation="linear")
        if found is not None:
            yield share, found
