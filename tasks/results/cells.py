"""One cell is one workload at one level; its runs are the repeats of a trial."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from settings.objective import Constraint, Objective
from settings.sweep import Sweep
from settings.workload import Workload
from tasks.domain.configuration import TrialResult
from tasks.domain.measurement import SLO, LevelResult, Validity
from tasks.results.statistics import (
    CONFIDENCE,
    Estimate,
    Noise,
    Ratio,
    estimate,
    pooled_noise,
    ratio,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload at a level: `chat/c64` or `chat/4/s`."""

    workload: str
    level: str

    def __str__(self) -> str:
        """Write the cell as the report's keys have it."""
        return f"{self.workload}/{self.level}"


def cells(results: Iterable[TrialResult]) -> tuple[Cell, ...]:
    """Name the cells that were measured, in the order of their first measurement."""
    found = (Cell(level.workload, level.level) for result in results for level in result.levels)
    return tuple(dict.fromkeys(found))


def runs(result: TrialResult, cell: Cell) -> tuple[LevelResult, ...]:
    """Find the runs of a cell that can be used, one a repeat: invalid ones are left out.

    Where a repeat was measured again, the last one counts.
    """
    by_repeat = {
        level.repeat: level
        for level in result.levels
        if Cell(level.workload, level.level) == cell
        and level.verdict.validity is not Validity.INVALID
    }
    return tuple(by_repeat[repeat] for repeat in sorted(by_repeat))


def values(result: TrialResult, cell: Cell, metric: str) -> tuple[float, ...]:
    """Read a metric of a cell, one value a run."""
    return tuple(run.metrics[metric] for run in runs(result, cell) if metric in run.metrics)


def cell_estimate(
    result: TrialResult, cell: Cell, metric: str, confidence: float = CONFIDENCE
) -> Estimate | None:
    """Estimate a metric of a cell; None where it wasn't measured."""
    return estimate(values(result, cell, metric), confidence)


def cell_ratio(
    result: TrialResult,
    reference: TrialResult,
    cell: Cell,
    metric: str,
    confidence: float = CONFIDENCE,
    noise: Noise | None = None,
) -> Ratio | None:
    """Estimate how a metric of a cell stands against the same of another trial."""
    mine, theirs = (values(side, cell, metric) for side in (result, reference))
    return ratio(mine, theirs, confidence, noise)


def cell_noise(results: Iterable[TrialResult], cell: Cell, metric: str) -> Noise | None:
    """Pool the noise of a metric in a cell over trials, from launch to launch."""
    return pooled_noise(values(result, cell, metric) for result in results)


def cell_means(result: TrialResult, cell: Cell) -> dict[str, float]:
    """Average every metric of a cell over its runs; one that no run could tell is left out."""
    names = dict.fromkeys(name for run in runs(result, cell) for name in run.metrics)
    means = {name: cell_estimate(result, cell, name) for name in names}
    return {name: found.mean for name, found in means.items() if found is not None}


def objective_cell(sweep: Sweep) -> Cell:
    """Find the cell that decides: the one that the objective names.

    Where it names no level, the heaviest of the workload counts: a configuration is only as good
    as it is under the load that it was asked to carry.
    """
    return _cell(sweep, sweep.objective, _workload(sweep, sweep.objective))


def constraint_cell(sweep: Sweep, constraint: Constraint) -> Cell:
    """Find the cell that a constraint bounds: the objective's, unless it names another."""
    unnamed = constraint.concurrency is None and constraint.request_rate is None
    decisive = objective_cell(sweep)
    if unnamed and constraint.workload in (None, decisive.workload):
        return decisive
    candidates = [w for w in sweep.workloads if constraint.workload in (None, w.name)]
    candidates.sort(key=lambda workload: workload.name != decisive.workload)
    having = [w for w in candidates if unnamed or _has_level(w, constraint)]
    return _cell(sweep, constraint, (having or candidates)[0])


def bounds(constraint: Constraint, cell: Cell) -> bool:
    """Tell whether a constraint has a say in a cell: what it doesn't name, it holds for all of."""
    if constraint.workload not in (None, cell.workload):
        return False
    levels = []
    if constraint.concurrency is not None:
        levels.append(_closed(constraint.concurrency))
    if constraint.request_rate is not None:
        levels.append(_open(constraint.request_rate))
    return not levels or cell.level in levels


def _workload(sweep: Sweep, wanted: Objective) -> Workload:
    return next(w for w in sweep.workloads if wanted.workload in (None, w.name))


def _cell(sweep: Sweep, wanted: Objective | Constraint, workload: Workload) -> Cell:
    if wanted.concurrency is not None:
        return Cell(workload.name, _closed(wanted.concurrency))
    if wanted.request_rate is not None:
        return Cell(workload.name, _open(wanted.request_rate))
    return workload_cells(workload)[-1]


def workload_cells(workload: Workload) -> tuple[Cell, ...]:
    """Name the cells of a workload, the lightest first; a search has one, its answer's."""
    if workload.largest is not None:
        return (Cell(workload.name, SLO),)
    closed = [_closed(level) for level in sorted(workload.concurrency)]
    opened = [_open(level) for level in sorted(workload.request_rate)]
    return tuple(Cell(workload.name, level) for level in (*closed, *opened))


def planned_cells(sweep: Sweep) -> Iterator[Cell]:
    """Name every cell that a trial of the sweep has to be measured in."""
    for workload in sweep.workloads:
        yield from workload_cells(workload)


def _has_level(workload: Workload, wanted: Constraint) -> bool:
    return (
        wanted.concurrency in workload.concurrency or wanted.request_rate in workload.request_rate
    )


def _closed(concurrency: int) -> str:
    return f"c{concurrency}"


def _open(request_rate: float) -> str:
    return f"{request_rate:g}/s"
