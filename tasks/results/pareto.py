"""What is to be had at once: throughput of each GPU against speed for each user.

A configuration under a load is a point. Who serves more at once serves each one slower; a point is
on the front where nothing that was measured beats it in the one without losing in the other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.measurement import SLO
from tasks.domain.sglang import gpus_of
from tasks.results.cells import Cell, cell_estimate, cells
from tasks.results.selection import broken_bounds

USER = "tokens_per_s_per_user"
"""1000 / median TPOT in ms, the mean over the runs: how fast a user's answer grows."""

GPU = "tokens_per_s_per_gpu"
"""Output throughput over the GPUs that the server takes, the mean over the runs."""

_SCHEMA: Mapping[str, pl.DataType] = {
    "trial_id": pl.String(),
    "workload": pl.String(),
    "level": pl.String(),
    USER: pl.Float64(),
    GPU: pl.Float64(),
}


def points(sweep: Sweep, trials: Sequence[TrialResult]) -> pl.DataFrame:
    """Lay out what may be chosen from, a row per trial and level.

    Trials that were measured and answered correctly, without the runs that are invalid, the levels
    that break a constraint (one that names no level holds at each) and the steps of a search
    that broke its SLO. What a search found is one of its steps already.
    """
    return pl.DataFrame(list(_rows(sweep, trials)), schema=_SCHEMA, orient="row")


def _rows(sweep: Sweep, trials: Sequence[TrialResult]) -> Iterator[tuple[object, ...]]:
    for result in trials:
        if result.verdict is not TrialVerdict.MEASURED:
            continue
        for cell in cells([result]):
            point = _point(result, cell)
            if point is not None and not _refused(sweep, result, cell):
                yield result.trial.trial_id, cell.workload, cell.level, *point


def _refused(sweep: Sweep, result: TrialResult, cell: Cell) -> bool:
    if cell.level == SLO or any(broken_bounds(sweep, result, cell)):
        return True
    searched = next((w.largest for w in sweep.workloads if w.name == cell.workload), None)
    kept = cell_estimate(result, cell, "slo_attainment")
    return searched is not None and (kept is None or kept.mean < searched.attainment)


def _point(result: TrialResult, cell: Cell) -> tuple[float, float] | None:
    tpot = cell_estimate(result, cell, "median_tpot_ms")
    throughput = cell_estimate(result, cell, "output_throughput")
    if tpot is None or throughput is None or tpot.mean <= 0:
        return None
    return 1000 / tpot.mean, throughput.mean / gpus_of(result.trial.configuration.args)


def with_front(found: pl.DataFrame, x: str = USER, y: str = GPU) -> pl.DataFrame:
    """Say of each point whether it is on the front (`on_front`), more of x and of y being better.

    A point is beaten by another that has at least as much of both and more of one; points that
    are equal in both don't beat each other. Each workload has a front of its own: other lengths
    are other work. The rows come back ordered by workload, then along the front.
    """
    at_each_x = (
        found.group_by("workload", x)
        .agg(most=pl.col(y).max())
        .sort(x, descending=True)
        .with_columns(most_beyond=pl.col("most").cum_max().shift(1).over("workload"))
    )
    unbeaten = (pl.col(y) == pl.col("most")) & (
        pl.col(y) > pl.col("most_beyond").fill_null(-math.inf)
    )
    judged = found.join(at_each_x, on=["workload", x]).with_columns(on_front=unbeaten)
    return judged.drop("most", "most_beyond").sort("workload", x, y, "trial_id", "level")


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point of the front: which trial under which load, and what each user and each GPU gets."""

    trial_id: str
    cell: Cell
    per_user: float
    per_gpu: float


def front_points(judged: pl.DataFrame) -> tuple[FrontPoint, ...]:
    """Read the points that are on the front, as `with_front` orders them."""
    rows = judged.filter("on_front").select("trial_id", "workload", "level", USER, GPU).iter_rows()
    return tuple(FrontPoint(row[0], Cell(row[1], row[2]), row[3], row[4]) for row in rows)
