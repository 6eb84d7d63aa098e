"""Night after night: what was best, and whether that changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tasks.domain.configuration import TrialResult
from tasks.results.cells import cell_estimate, cell_ratio
from tasks.results.records import StoredSweep, SweepRecord
from tasks.results.selection import Selection, as_gain, select
from tasks.results.statistics import Estimate, Ratio
from tasks.results.store import list_sweeps, load_sweep


@dataclass(frozen=True, slots=True)
class Night:
    """One sweep in the history.

    `gain` is the best over that night's baseline; `change` is the best over the last night's best
    of the same sweep name, `baseline_change` the same of the baselines. Above 1 is better,
    whichever way the objective goes. None where one of the two wasn't measured.
    """

    record: SweepRecord
    metric: str
    cell: str
    best_label: str
    best: Estimate | None
    baseline: Estimate | None
    gain: Ratio | None
    change: Ratio | None = None
    baseline_change: Ratio | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Nights in the order of time; `warnings` name what could not be read."""

    nights: tuple[Night, ...]
    warnings: tuple[str, ...] = ()


def history(store: Path, name: str | None = None, last: int = 30) -> History:
    """Look back over the `last` sweeps of a name, or of every name."""
    listing = list_sweeps(store)
    wanted = [r for r in listing.sweeps if name in (None, r.sweep.name)][:last]
    sweeps = [load_sweep(store, record.sweep_id) for record in reversed(wanted)]
    names = dict.fromkeys(stored.sweep.name for stored in sweeps)
    nights = [
        night
        for one in names
        for night in _nights([stored for stored in sweeps if stored.sweep.name == one])
    ]
    nights.sort(key=lambda night: night.record.sweep_id)
    warnings = (warning for stored in sweeps for warning in stored.warnings)
    return History(tuple(nights), (*listing.warnings, *warnings))


def _nights(sweeps: Sequence[StoredSweep]) -> Iterator[Night]:
    chosen = [(stored, select(stored.sweep, stored.trials)) for stored in sweeps]
    if chosen:
        yield _night(*chosen[0], None)
    for (_, before), (stored, selection) in pairwise(chosen):
        yield _night(stored, selection, before)


def _night(stored: StoredSweep, selection: Selection, before: Selection | None) -> Night:
    best = selection.best
    label = "" if best is None else best.result.trial.label
    baseline = selection.baseline
    cell, metric = selection.cell, selection.metric
    return Night(
        record=stored.record,
        metric=metric,
        cell=str(cell),
        best_label=label,
        best=None if best is None else best.objective,
        baseline=None if baseline is None else cell_estimate(baseline, cell, metric),
        gain=None if best is None else best.gain,
        change=_change(stored, selection, before, of_baseline=False),
        baseline_change=_change(stored, selection, before, of_baseline=True),
    )


def _change(
    stored: StoredSweep, now: Selection, before: Selection | None, *, of_baseline: bool
) -> Ratio | None:
    """Compare with the night before, where both nights had the same objective."""
    if before is None or (now.cell, now.metric) != (before.cell, before.metric):
        return None
    mine, theirs = (_side(selection, of_baseline=of_baseline) for selection in (now, before))
    if mine is None or theirs is None:
        return None
    return as_gain(stored.sweep, cell_ratio(mine, theirs, now.cell, now.metric))


def _side(selection: Selection, *, of_baseline: bool) -> TrialResult | None:
    if of_baseline:
        return selection.baseline
    return None if selection.best is None else selection.best.result
