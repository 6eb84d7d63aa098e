"""What the tokens cost in energy, where nvidia-smi told the power of the GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.configuration import TrialResult
from tasks.domain.measurement import SearchRole
from tasks.results.cells import Cell, cell_estimate
from tasks.results.selection import Selection
from tasks.results.statistics import Estimate

PER_JOULE = "output_tokens_per_joule"
_J_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Energy:
    """Output tokens per joule of the GPUs in the decisive cell, and the energy of all runs.

    `most` is the trial that gets the most tokens from a joule, among those that may be chosen.
    """

    kwh: float
    cell: Cell
    best: Estimate | None
    baseline: Estimate | None
    most: TrialResult
    most_per_joule: Estimate


def energy_of(trials: Sequence[TrialResult], selection: Selection) -> Energy | None:
    """Sum up the energy of a night; None where nobody measured any that may be chosen."""
    cell = selection.cell
    known = [
        (found.mean, each.result, found)
        for each in selection.ranked
        if (found := cell_estimate(each.result, cell, PER_JOULE)) is not None
    ]
    if not known:
        return None
    _, most, per_joule = max(known, key=lambda one: one[0])
    joules = sum(
        level.metrics.get("gpu_energy_j", 0.0)
        for result in trials
        for level in result.levels
        if level.search is not SearchRole.FOUND
    )
    of = {
        name: None if result is None else cell_estimate(result, cell, PER_JOULE)
        for name, result in (
            ("best", selection.best.result if selection.best else None),
            ("baseline", selection.baseline),
        )
    }
    return Energy(joules / _J_PER_KWH, cell, of["best"], of["baseline"], most, per_joule)
