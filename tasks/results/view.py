"""What a report shows, as plain texts: the terminal and the HTML page lay out the same rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from settings.quantities import show_duration
from tasks.domain.configuration import Attempt, TrialResult, TrialVerdict, Value
from tasks.domain.diagnosis import Action, Diagnosis, Evidence
from tasks.results.attempts import cured_by, failures
from tasks.results.cells import cell_estimate, cell_ratio
from tasks.results.command_line import attempt_command
from tasks.results.comparison import headline_metrics
from tasks.results.effects import NO_EFFECTS, Effects, effects
from tasks.results.energy import PER_JOULE, Energy, energy_of
from tasks.results.records import StoredSweep
from tasks.results.selection import Candidate, Selection, as_gain, select
from tasks.results.spending import Hours, hours_of
from tasks.results.stability import stability
from tasks.results.statistics import Ratio
from tasks.results.wording import (
    ABSENT,
    estimate_text,
    number,
    remedies_text,
    remedy_text,
    value_text,
    varying_axes,
)

_ORDER = tuple(TrialVerdict)
_MOST_EVIDENCE = 6


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial in the table; `metrics` has a text for each of the page's metrics."""

    result: TrialResult
    axes: tuple[str, ...]
    metrics: tuple[str, ...]
    gain: Ratio | None
    note: str
    best: bool
    tied: bool
    per_joule: str = ABSENT


@dataclass(frozen=True, slots=True)
class FailureRow:
    """One failed launch: cause, evidence, cure, command."""

    trial_id: str
    label: str
    attempt: Attempt
    mode: str
    phase: str
    explanation: str
    evidence: tuple[Evidence, ...]
    cure: str
    outcome: str
    cured: bool
    command: str
    docs: str


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Launches that failed alike: told once, with the first one's evidence and command."""

    first: FailureRow
    evidence: tuple[Evidence, ...]
    trials: tuple[str, ...]
    launches: int
    cured: int

    @property
    def outcome(self) -> str:
        """Say what became of them."""
        if self.launches == 1:
            return self.first.outcome
        if self.cured:
            return f"cured: {self.cured} of {self.launches} launches"
        return self.first.outcome


@dataclass(frozen=True, slots=True)
class View:
    """A whole report: the decision, the table, the failures, what was not launched and why.

    `shared_remedies` were in force in every trial that was measured; no row repeats them.
    """

    stored: StoredSweep
    selection: Selection
    axes: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: tuple[TrialRow, ...]
    failures: tuple[FailureRow, ...]
    unlaunched: Mapping[str, tuple[str, ...]]
    shared_remedies: str = ""
    effects: Effects = NO_EFFECTS
    hours: Hours | None = None
    energy: Energy | None = None

    @property
    def counts(self) -> str:
        """Count the trials by verdict: `3 measured, 1 incorrect, 2 pruned`."""
        verdicts = [result.verdict for result in self.stored.trials]
        found = [(verdicts.count(verdict), verdict) for verdict in _ORDER]
        return ", ".join(f"{count} {verdict}" for count, verdict in found if count)

    @property
    def tunnelled(self) -> str:
        """Say so where the load went through an SSH tunnel."""
        levels = [level for result in self.stored.trials for level in result.levels]
        if not any(level.client.get("load_path") == "tunnel" for level in levels):
            return ""
        return "The load came through an SSH tunnel: latencies and rates include it."

    @property
    def stability(self) -> tuple[str, ...]:
        """Say where the night didn't hold still."""
        return stability(self.stored)

    @property
    def lasted(self) -> str:
        """Tell how long the sweep took; nothing while it runs."""
        record = self.stored.record
        if record.ended_at is None:
            return ""
        return show_duration(record.ended_at - record.started_at)


def view(stored: StoredSweep) -> View:
    """Work out everything that a report shows."""
    selection = select(stored.sweep, stored.trials)
    axes = varying_axes(result.trial.axes for result in stored.trials)
    metrics = headline_metrics(stored.sweep)
    ordered = _ordered(stored.trials, selection)
    shared = _shared_remedies(ordered)
    return View(
        stored=stored,
        selection=selection,
        axes=axes,
        metrics=metrics,
        rows=tuple(_row(stored, selection, result, axes, metrics, shared) for result in ordered),
        failures=tuple(_failures(ordered)),
        unlaunched=_unlaunched(ordered),
        shared_remedies=shared,
        effects=effects(stored.sweep, stored.trials, selection),
        hours=hours_of(stored),
        energy=energy_of(stored.trials, selection),
    )


def failure_groups(failures: Sequence[FailureRow]) -> tuple[FailureGroup, ...]:
    """Put launches that failed for the same cause and with the same end into one."""
    alike: dict[tuple[str, str, str], list[FailureRow]] = {}
    for failure in failures:
        key = (failure.mode, failure.cure, failure.outcome.partition(":")[0])
        alike.setdefault(key, []).append(failure)
    return tuple(
        FailureGroup(
            first=group[0],
            evidence=group[0].evidence[:_MOST_EVIDENCE],
            trials=tuple(dict.fromkeys(failure.label for failure in group)),
            launches=len(group),
            cured=sum(failure.cured for failure in group),
        )
        for group in alike.values()
    )


def _ordered(trials: Sequence[TrialResult], selection: Selection) -> list[TrialResult]:
    """Put the best first, then the others that may be chosen, then the rest by verdict."""
    ranked = [candidate.result for candidate in selection.ranked]
    rest = [result for result in trials if result.trial.trial_id in selection.excluded]
    return [*ranked, *sorted(rest, key=lambda result: _ORDER.index(result.verdict))]


def _row(
    stored: StoredSweep,
    selection: Selection,
    result: TrialResult,
    axes: Sequence[str],
    metrics: Sequence[str],
    shared: str,
) -> TrialRow:
    trial = result.trial
    best = selection.best is not None and selection.best.result is result
    return TrialRow(
        result=result,
        axes=tuple(_axis(result, name) for name in axes),
        metrics=tuple(_metric(selection, result, metric) for metric in metrics),
        gain=_gain(stored, selection, result),
        note=_note(selection, result, shared),
        best=best,
        tied=trial.trial_id in _ids(selection.tied),
        per_joule=_mean(selection, result, PER_JOULE),
    )


def _axis(result: TrialResult, name: str) -> str:
    axes = result.trial.axes
    value: Value = axes.get(name)
    return value_text(value) if name in axes else ABSENT


def _metric(selection: Selection, result: TrialResult, metric: str) -> str:
    """Show the objective with its interval, the others without: a table must stay readable."""
    if metric == selection.metric:
        return estimate_text(cell_estimate(result, selection.cell, metric))
    return _mean(selection, result, metric)


def _mean(selection: Selection, result: TrialResult, metric: str) -> str:
    found = cell_estimate(result, selection.cell, metric)
    return ABSENT if found is None else number(found.mean)


def _gain(stored: StoredSweep, selection: Selection, result: TrialResult) -> Ratio | None:
    baseline = selection.baseline
    if baseline is None or baseline is result:
        return None
    place = selection.cell, selection.metric
    return as_gain(stored.sweep, cell_ratio(result, baseline, *place, noise=selection.noise))


def _note(selection: Selection, result: TrialResult, shared: str) -> str:
    """Say why a trial isn't chosen, and under which remedies it was measured."""
    parts = [selection.excluded.get(result.trial.trial_id, "")]
    remedies = remedies_text(result)
    if result.altered:
        parts.append(f"altered by {remedies}")
    elif remedies and remedies != shared:
        parts.append(f"with {remedies}")
    return "; ".join(part for part in parts if part)


def _shared_remedies(trials: Sequence[TrialResult]) -> str:
    texts = {remedies_text(result) for result in trials if result.levels}
    return texts.pop() if len(texts) == 1 else ""


def _failures(ordered: Sequence[TrialResult]) -> Iterator[FailureRow]:
    for result in ordered:
        for attempt, diagnosis in failures(result):
            yield _failure(result, attempt, diagnosis)


def _failure(result: TrialResult, attempt: Attempt, diagnosis: Diagnosis) -> FailureRow:
    cure = cured_by(result, attempt)
    return FailureRow(
        trial_id=result.trial.trial_id,
        label=result.trial.label,
        attempt=attempt,
        mode=diagnosis.mode,
        phase=str(diagnosis.phase).replace("_", " "),
        explanation=diagnosis.explanation,
        evidence=diagnosis.evidence,
        cure=remedy_text(diagnosis.remedy) if diagnosis.remedy else "",
        outcome=_outcome(result, attempt, diagnosis, cure),
        cured=cure is not None,
        command=attempt_command(attempt),
        docs=diagnosis.docs,
    )


def _outcome(
    result: TrialResult, attempt: Attempt, diagnosis: Diagnosis, cure: Attempt | None
) -> str:
    if cure is not None:
        return f"cured: launch {cure.number} served"
    match diagnosis.action:
        case Action.PRUNE:
            return "pruned: this configuration cannot run here"
        case Action.STOP:
            return "stopped: the host needs a person"
        case _ if attempt is not result.attempts[-1]:
            return "launched again, failed again"
        case _:
            return "not cured"


def _unlaunched(trials: Sequence[TrialResult]) -> dict[str, tuple[str, ...]]:
    """Group the trials that were decided without a launch by the reason."""
    found: dict[str, tuple[str, ...]] = {}
    for result in trials:
        if not result.attempts and result.verdict is not TrialVerdict.PENDING:
            reason = result.reason or str(result.verdict)
            found[reason] = (*found.get(reason, ()), result.trial.label)
    return found


def _ids(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.result.trial.trial_id for candidate in candidates]
