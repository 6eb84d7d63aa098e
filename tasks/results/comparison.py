"""How one set of results stands against another, cell by cell.

The verdict is on the first side; the second is the reference: `compare tonight last-night`,
`compare tonight baseline`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.errors import InputError
from tasks.results.cells import Cell, cell_estimate, cell_noise, cell_ratio, cells, values
from tasks.results.changes import clock_changes, what_changed, workload_differences
from tasks.results.records import StoredSweep
from tasks.results.selection import MARGIN, reciprocal
from tasks.results.stability import stability
from tasks.results.statistics import Estimate, Noise, Ratio, holm_confidences, p_value

METRICS = ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms")
"""What is compared unless other metrics are named."""

UsualNoise = Mapping[tuple[Cell, str], Noise]
"""The noise of a metric in a cell, as other nights know it."""

_Pair = tuple[TrialResult, TrialResult]

_COMPARABLE = (TrialVerdict.MEASURED, TrialVerdict.SUSPECT)


class CellVerdict(StrEnum):
    """How a cell stands against the reference, for the user: a lower latency is `faster`."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class CellComparison:
    """One metric of one cell; `ratio` is the first side over the reference, as measured.

    `noise` is what its interval rests on where a side has a single run: the spread of others.
    """

    cell: Cell
    metric: str
    mine: Estimate | None
    reference: Estimate | None
    ratio: Ratio | None
    verdict: CellVerdict
    note: str = ""
    noise: Noise | None = None


@dataclass(frozen=True, slots=True)
class TrialComparison:
    """A pair of trials; `label` tells what they have in common, or both where they differ."""

    label: str
    trial_id: str
    reference_id: str
    cells: tuple[CellComparison, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sets of results; `changes` are the other things that differ, `unmatched` left out.

    `stability` says of each side where its night didn't hold still.
    """

    of: str
    against: str
    pairs: tuple[TrialComparison, ...]
    unmatched: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    stability: tuple[str, ...] = ()


class UnlikeRuns(InputError):
    """What was measured differs in more than the configuration, so a ratio would mislead."""

    def __init__(self, of: str, against: str, faults: Sequence[str]) -> None:
        advice = "compare them all the same with --force"
        super().__init__(f"{of} against {against}", [f"{fault}; {advice}" for fault in faults])


def compare(
    mine: TrialResult,
    reference: TrialResult,
    *,
    metrics: Sequence[str] = METRICS,
    margin: float = MARGIN,
    force: bool = False,
    usual: UsualNoise | None = None,
) -> TrialComparison:
    """Compare two trials in each cell that both were measured in.

    The confidence of 95 % holds for a metric over all cells together (Holm). `usual` is the noise
    known from other nights, for runs that weren't repeated. Raises `UnlikeRuns` where the software
    differs though the same stack was asked for, unless `force`.
    """
    faults = [] if force else list(_unlike_stacks(mine, reference))
    if faults:
        raise UnlikeRuns(mine.trial.label, reference.trial.label, faults)
    return _compare_pairs([(mine, reference)], metrics, margin, usual or {})[0]


def compare_sweeps(
    mine: StoredSweep,
    reference: StoredSweep,
    *,
    metrics: Sequence[str] | None = None,
    margin: float = MARGIN,
    force: bool = False,
    usual: UsualNoise | None = None,
) -> Comparison:
    """Compare the trials that two sweeps share: the same configuration, or the same axis values.

    Raises `UnlikeRuns`, naming every difference, where workloads or software differ.
    """
    pairs, unmatched = _match(mine.trials, reference.trials)
    return _compared(mine, reference, pairs, unmatched, metrics, margin, force, usual)


def compare_trials(
    mine: StoredSweep,
    reference: StoredSweep,
    *,
    metrics: Sequence[str] | None = None,
    margin: float = MARGIN,
    force: bool = False,
    usual: UsualNoise | None = None,
) -> Comparison:
    """Compare the only trial of each side, whatever their configurations.

    Raises `InputError` where one of them wasn't measured, and `UnlikeRuns`.
    """
    for stored in (mine, reference):
        if not _comparable(stored.trials[0]):
            raise InputError(stored.record.sweep_id, [_left_out(stored.trials[0])])
    pair = (mine.trials[0], reference.trials[0])
    return _compared(mine, reference, [pair], (), metrics, margin, force, usual)


def compare_with_baseline(
    stored: StoredSweep,
    *,
    metrics: Sequence[str] | None = None,
    margin: float = MARGIN,
    usual: UsualNoise | None = None,
    only: str | None = None,
) -> Comparison:
    """Compare each trial of a sweep, or the one of an id, with the sweep's baseline.

    Within one sweep everything that differs is an axis, so nothing is refused. Raises `InputError`
    where the baseline wasn't measured.
    """
    baseline = next((r for r in stored.trials if r.trial.baseline and _comparable(r)), None)
    if baseline is None:
        raise InputError(stored.record.sweep_id, ["its baseline was not measured"])
    others = [
        result
        for result in stored.trials
        if result is not baseline and only in (None, result.trial.trial_id)
    ]
    wanted = headline_metrics(stored.sweep) if metrics is None else metrics
    pairs = [(result, baseline) for result in others if _comparable(result)]
    compared = _compare_pairs(pairs, wanted, margin, usual or {})
    left_out = tuple(_left_out(result) for result in others if not _comparable(result))
    return Comparison(
        stored.record.sweep_id, "baseline", compared, left_out, stability=stability(stored)
    )


def _compared(
    mine: StoredSweep,
    reference: StoredSweep,
    pairs: Sequence[_Pair],
    unmatched: tuple[str, ...],
    metrics: Sequence[str] | None,
    margin: float,
    force: bool,
    usual: UsualNoise | None,
) -> Comparison:
    names = mine.record.sweep_id, reference.record.sweep_id
    if not force:
        faults = [*workload_differences(mine.sweep, reference.sweep)]
        faults += dict.fromkeys(fault for pair in pairs for fault in _unlike_stacks(*pair))
        if faults:
            raise UnlikeRuns(*names, faults)
    wanted = headline_metrics(mine.sweep) if metrics is None else metrics
    compared = _compare_pairs(pairs, wanted, margin, usual or {})
    changes = (*what_changed(mine.record, reference.record), *clock_changes(mine, reference))
    unstable = [
        f"{side.record.sweep_id}: {line}" for side in (mine, reference) for line in stability(side)
    ]
    return Comparison(*names, compared, unmatched, changes, tuple(dict.fromkeys(unstable)))


def headline_metrics(sweep: Sweep) -> tuple[str, ...]:
    """Name what a sweep is about: its objective, its constraints, then the usual metrics."""
    bounds = [constraint.metric for constraint in sweep.constraints]
    return tuple(dict.fromkeys((sweep.objective.metric, *bounds, *METRICS)))


def lower_is_better(metric: str) -> bool:
    """Tell latencies and durations from rates."""
    return metric.endswith("_ms") or metric == "duration"


def judge(found: Ratio | None, margin: float, *, lower: bool) -> tuple[CellVerdict, str]:
    """Judge a ratio, and say why where it decides nothing.

    `faster` and `slower`: the interval excludes 1 and the ratio itself is beyond the margin.
    `same`: the whole interval lies within the margin. Otherwise `inconclusive`; so is every ratio
    of single runs of which no noise is known, however large: one launch of each says nothing of
    the spread between launches.
    """
    if found is None:
        return CellVerdict.INCONCLUSIVE, "not measured on both sides"
    speed = reciprocal(found) if lower else found
    if speed.interval is None:
        return CellVerdict.INCONCLUSIVE, "one run on a side: repeat to decide"
    low, high = speed.interval.low, speed.interval.high
    if low >= 1 / (1 + margin) and high <= 1 + margin:
        return CellVerdict.SAME, ""
    if low > 1 and speed.value >= 1 + margin:
        return CellVerdict.FASTER, ""
    if high < 1 and speed.value <= 1 / (1 + margin):
        return CellVerdict.SLOWER, ""
    return CellVerdict.INCONCLUSIVE, "the runs differ too much: more repeats would decide"


def _compare_pairs(
    pairs: Sequence[_Pair], metrics: Sequence[str], margin: float, usual: UsualNoise
) -> tuple[TrialComparison, ...]:
    """Compare pairs; the confidence holds for a metric over all cells of all pairs."""
    found: list[list[CellComparison]] = [[] for _ in pairs]
    shared = [
        (number, cell)
        for number, (mine, reference) in enumerate(pairs)
        for cell in cells([mine])
        if cell in cells([reference])
    ]
    for metric in metrics:
        noises = {cell: _noise(pairs, cell, metric, usual) for _, cell in shared}
        chances = [_p_value(pairs[number], cell, metric, noises[cell]) for number, cell in shared]
        for (number, cell), confidence in zip(shared, holm_confidences(chances), strict=True):
            judged = _cell(pairs[number], cell, metric, margin, confidence, noises[cell])
            if judged.mine or judged.reference:
                found[number].append(judged)
    return tuple(
        TrialComparison(_label(*pair), pair[0].trial.trial_id, pair[1].trial.trial_id, tuple(each))
        for pair, each in zip(pairs, found, strict=True)
    )


def _noise(pairs: Sequence[_Pair], cell: Cell, metric: str, usual: UsualNoise) -> Noise | None:
    """The noise from launch to launch of all that is compared, else that of other nights."""
    sides = {id(result): result for pair in pairs for result in pair}
    return cell_noise(sides.values(), cell, metric) or usual.get((cell, metric))


def _p_value(pair: _Pair, cell: Cell, metric: str, noise: Noise | None) -> float | None:
    mine, theirs = (values(side, cell, metric) for side in pair)
    return p_value(mine, theirs, noise)


def _cell(
    pair: _Pair, cell: Cell, metric: str, margin: float, confidence: float, noise: Noise | None
) -> CellComparison:
    found = cell_ratio(*pair, cell, metric, confidence, noise)
    verdict, note = judge(found, margin, lower=lower_is_better(metric))
    doubtful = [result for result in pair if result.verdict is TrialVerdict.SUSPECT]
    if doubtful:
        verdict, note = CellVerdict.INCONCLUSIVE, f"suspect: {doubtful[0].reason}"
    of_mine, of_reference = (cell_estimate(side, cell, metric, confidence) for side in pair)
    borrowed = noise if found and min(found.n, found.n_reference) == 1 else None
    return CellComparison(cell, metric, of_mine, of_reference, found, verdict, note, borrowed)


def _match(
    mine: Sequence[TrialResult], reference: Sequence[TrialResult]
) -> tuple[list[tuple[TrialResult, TrialResult]], tuple[str, ...]]:
    """Pair trials by configuration, else by axis values; name those that are left over."""
    usable = [result for result in reference if _comparable(result)]
    by_id = {result.trial.trial_id: result for result in usable}
    by_axes = {_axes_key(result.trial.axes): result for result in usable}
    pairs, unmatched = [], []
    for result in mine:
        same = by_id.get(result.trial.trial_id) or by_axes.get(_axes_key(result.trial.axes))
        if not _comparable(result):
            unmatched.append(_left_out(result))
        elif same is None:
            unmatched.append(f"{result.trial.label}: not measured on the other side")
        else:
            pairs.append((result, same))
    paired = [other.trial.trial_id for _, other in pairs]
    unmatched += [
        f"{r.trial.label}: only on the other side" for r in usable if r.trial.trial_id not in paired
    ]
    return pairs, tuple(unmatched)


def _axes_key(axes: Mapping[str, object]) -> str:
    return repr(sorted(axes.items()))


def _comparable(result: TrialResult) -> bool:
    return result.verdict in _COMPARABLE and bool(result.levels)


def _left_out(result: TrialResult) -> str:
    return f"{result.trial.label}: {result.verdict}" + (result.reason and f", {result.reason}")


def _unlike_stacks(mine: TrialResult, reference: TrialResult) -> Iterator[str]:
    """Other software is a fault unless the trials asked for different stacks."""
    asked_alike = mine.trial.configuration.stack == reference.trial.configuration.stack
    if asked_alike and mine.fingerprint != reference.fingerprint:
        yield (
            f"the software differs (fingerprint {mine.fingerprint or 'unknown'} "
            f"against {reference.fingerprint or 'unknown'})"
        )


def _label(mine: TrialResult, reference: TrialResult) -> str:
    if mine.trial.axes == reference.trial.axes:
        return mine.trial.label
    differing = {
        name: value
        for name, value in mine.trial.axes.items()
        if name not in reference.trial.axes or reference.trial.axes[name] != value
    }
    return " ".join(f"{name}={value}" for name, value in differing.items()) or mine.trial.label
