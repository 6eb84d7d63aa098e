"""What a night has to tell: one alert a cause, with the decision, the numbers and the link."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tasks.domain.configuration import TrialVerdict
from tasks.results.attempts import failures
from tasks.results.conclusion import NEEDS_PERSON, Conclusion
from tasks.results.records import StoredSweep, SweepState
from tasks.results.selection import Selection
from tasks.results.view import View
from tasks.results.wording import estimate_text, gain_text, interval_text, metric_title

PREFIX = "sglang-sweep"
FINISHED = f"{PREFIX}.sweep.finished"
LAUNCH_FAILED = f"{PREFIX}.launch.failed"
REGRESSION = f"{PREFIX}.regression"
HOST_UNFIT = f"{PREFIX}.host.unfit"

_COST_A_TRIAL = (TrialVerdict.PRUNED, TrialVerdict.FAILED, TrialVerdict.STOPPED)


@dataclass(frozen=True, slots=True)
class Alert:
    """An event by its name; `payload["text"]` is the whole message for a person."""

    event: str
    host: str
    payload: Mapping[str, object]


def alerts(page: View, conclusion: Conclusion, link: str) -> tuple[Alert, ...]:
    """What to tell of a sweep that has ended: that it has, and each cause that cost it a trial.

    `link` is where the report is.
    """
    stored = page.stored
    sweep = stored.sweep
    decision = decision_text(page.selection)
    common = {
        "sweep": sweep.name,
        "sweep_id": stored.record.sweep_id,
        "host": sweep.host,
        "state": conclusion.name,
        "decision": decision,
        "report": link,
    }
    title = f"{sweep.name} on {sweep.host}"

    def alert(event: str, said: str, **more: object) -> Alert:
        text = f"{title}: {said}\n{decision}\n{conclusion.message}\nreport: {link}"
        return Alert(event, sweep.host, {**common, **more, "text": text})

    told = [alert(FINISHED, conclusion.name)]
    if conclusion.state is SweepState.REGRESSION:
        told.append(alert(REGRESSION, f"got slower: {conclusion.message}"))
    if conclusion.name == NEEDS_PERSON:
        told.append(alert(HOST_UNFIT, f"the host needs a person: {conclusion.message}"))
    for mode, trials, explanation in _causes(stored):
        some = f"{len(trials)} trial{'s' if len(trials) > 1 else ''}"
        said = f"{mode} cost {some}: {explanation}"
        told.append(alert(LAUNCH_FAILED, said, mode=mode, trials=trials, explanation=explanation))
    return tuple(told)


def unfit(sweep: str, host: str, reason: str) -> Alert:
    """What to tell of a host on which no sweep could even begin."""
    text = f"{sweep} on {host}: nothing was measured: {reason}"
    return Alert(HOST_UNFIT, host, {"sweep": sweep, "host": host, "reason": reason, "text": text})


def decision_text(selection: Selection) -> str:
    """The decision in a line: the best configuration, its objective and its gain."""
    best = selection.best
    if best is None:
        return "no configuration can be recommended"
    value = f"{estimate_text(best.objective)} {metric_title(selection.metric)}"
    if best.result.trial.baseline:
        return f"best: the baseline, {best.result.trial.label}: {value}"
    interval = interval_text(best.gain)
    gain = f", {gain_text(best.gain)} over the baseline" if best.gain else ""
    return f"best: {best.result.trial.label}: {value}{gain}{f' ({interval})' if interval else ''}"


def _causes(stored: StoredSweep) -> Iterator[tuple[str, list[str], str]]:
    """Each failure mode that was a trial's last, with the trials and its explanation."""
    last: dict[str, list[str]] = {}
    explained: dict[str, str] = {}
    for result in stored.trials:
        found = list(failures(result))
        if found and result.verdict in _COST_A_TRIAL:
            diagnosis = found[-1][1]
            last.setdefault(diagnosis.mode, []).append(result.trial.label)
            explained.setdefault(diagnosis.mode, diagnosis.explanation)
    for mode, trials in last.items():
        yield mode, trials, explained[mode]
