"""The report for machines: `sglang-sweep report ID --json`."""

from dataclasses import asdict
from typing import Any

from tasks.domain.configuration import Attempt, ServerConfiguration, Trial, TrialResult
from tasks.domain.diagnosis import Diagnosis, Remedy
from tasks.results.attempts import cured_by, failures
from tasks.results.cells import cell_means, cells
from tasks.results.command_line import attempt_command, deploy_command
from tasks.results.effects import effects
from tasks.results.pareto import FrontPoint, front_points, points, with_front
from tasks.results.records import StoredSweep
from tasks.results.selection import Candidate, Selection, select
from tasks.results.spending import Spending, hours_of
from tasks.results.stability import effect_json, order_effect, stability
from tasks.results.statistics import Estimate, Interval, Ratio

Json = dict[str, Any]


def report_json(stored: StoredSweep) -> Json:
    """Build the report: state, the best configuration, the baseline, and every trial.

    Metrics are means over the repeats, keyed `workload/level`; what can't be told is null.
    """
    selection = select(stored.sweep, stored.trials)
    record = stored.record
    return {
        "sweep_id": record.sweep_id,
        "name": record.sweep.name,
        "host": record.sweep.host,
        "state": str(record.state),
        "reason": record.reason,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "objective": _objective(stored, selection),
        "best": None if selection.best is None else _candidate(selection.best),
        "baseline": None if selection.baseline is None else _deployable(selection.baseline),
        "certainty": selection.certainty,
        "tied": [candidate.result.trial.trial_id for candidate in selection.tied],
        "front": [_front_point(point) for point in _front(stored)],
        "effects": _effects(stored, selection),
        "hours": _hours(stored),
        "trials": [_trial(result, selection) for result in stored.trials],
        "warnings": list(stored.warnings),
        "stability": list(stability(stored)),
        "order_effect": effect_json(order_effect(stored.trials, selection.cell, selection.metric)),
    }


def _front(stored: StoredSweep) -> tuple[FrontPoint, ...]:
    return front_points(with_front(points(stored.sweep, stored.trials)))


def _front_point(point: FrontPoint) -> Json:
    return {
        "trial_id": point.trial_id,
        "cell": str(point.cell),
        "tokens_per_s_per_user": point.per_user,
        "tokens_per_s_per_gpu": point.per_gpu,
    }


def _effects(stored: StoredSweep, selection: Selection) -> Json:
    found = effects(stored.sweep, stored.trials, selection)
    main = [
        {**asdict(one.setting), "gain": ratio_json(one.gain), "pairs": one.pairs}
        for one in found.main
    ]
    together = [
        {
            "first": asdict(one.first),
            "second": asdict(one.second),
            "gain": ratio_json(one.gain),
            "certain": one.certain,
        }
        for one in found.interactions
    ]
    return {"main": main, "interactions": together}


def _hours(stored: StoredSweep) -> Json | None:
    """Seconds by what they went on; null where the sweep has no length yet."""
    found = hours_of(stored)
    if found is None:
        return None
    seconds = {f"{kind}_s": found.seconds[kind] for kind in Spending}
    return {**seconds, "total_s": found.total_s, "gpus": found.gpus}


def _objective(stored: StoredSweep, selection: Selection) -> Json:
    goal = stored.sweep.objective.goal
    return {"metric": selection.metric, "cell": str(selection.cell), "goal": goal}


def _candidate(candidate: Candidate) -> Json:
    return {
        **_deployable(candidate.result),
        "objective": estimate_json(candidate.objective),
        "gain": ratio_json(candidate.gain),
    }


def _deployable(result: TrialResult) -> Json:
    return {
        "trial_id": result.trial.trial_id,
        "config": _config(result.trial),
        "command": deploy_command(result),
        "metrics": _metrics(result),
        "remedies": [remedy_json(remedy) for remedy in result.remedies],
        "altered": result.altered,
    }


def _trial(result: TrialResult, selection: Selection) -> Json:
    trial_id = result.trial.trial_id
    return {
        **_deployable(result),
        "baseline": result.trial.baseline,
        "verdict": str(result.verdict),
        "reason": result.reason,
        "not_chosen": selection.excluded.get(trial_id),
        "attempts": [_attempt(result, attempt) for attempt in result.attempts],
        "failures": [_failure(result, *failed) for failed in failures(result)],
        "fingerprint": result.fingerprint,
        "repeats": result.repeats_done,
    }


def _config(trial: Trial) -> Json:
    configuration: ServerConfiguration = trial.configuration
    return {
        "axes": dict(trial.axes),
        "model_path": configuration.model_path,
        "args": dict(configuration.args),
        "env": dict(configuration.env),
        "stack": configuration.stack,
    }


def _metrics(result: TrialResult) -> dict[str, dict[str, float]]:
    return {str(cell): cell_means(result, cell) for cell in cells([result])}


def _attempt(result: TrialResult, attempt: Attempt) -> Json:
    return {
        "number": attempt.number,
        "repeat": attempt.repeat,
        "command": attempt_command(attempt),
        "stack": attempt.stack,
        "started_at": attempt.started_at,
        "ready_s": attempt.ready_s,
        "exit_code": attempt.exit_code,
        "failure": attempt.diagnosis.mode if attempt.diagnosis else None,
        "remedies": [remedy_json(remedy) for remedy in attempt.remedies],
        "folder": attempt.folder,
    }


def _failure(result: TrialResult, attempt: Attempt, diagnosis: Diagnosis) -> Json:
    cure = cured_by(result, attempt)
    return {
        "attempt": attempt.number,
        "mode": diagnosis.mode,
        "phase": str(diagnosis.phase),
        "action": str(diagnosis.action),
        "explanation": diagnosis.explanation,
        "evidence": [asdict(line) for line in diagnosis.evidence],
        "remedy": remedy_json(diagnosis.remedy) if diagnosis.remedy else None,
        "cured_by_attempt": cure.number if cure else None,
    }


def remedy_json(remedy: Remedy) -> Json:
    """Show a remedy: what it says and what it sets; what it leaves alone is left out."""
    content = {
        "env": dict(remedy.env),
        "args": dict(remedy.args),
        "scale_args": dict(remedy.scale_args),
        "rename_args": dict(remedy.rename_args),
        "cleanup": [str(cleanup) for cleanup in remedy.cleanup],
        "another_port": remedy.another_port,
        "another_stack": remedy.another_stack,
        "wait_s": remedy.wait_s,
    }
    set_by_it = {name: value for name, value in content.items() if value}
    return {"summary": remedy.summary, **set_by_it, "alters": remedy.alters}


def estimate_json(found: Estimate | None) -> Json | None:
    """Show a mean; null where it wasn't measured."""
    if found is None:
        return None
    return {"mean": found.mean, "n": found.n, "interval": interval_json(found.interval)}


def ratio_json(found: Ratio | None) -> Json | None:
    """Show a ratio to a baseline or reference; null where there is none."""
    if found is None:
        return None
    sides = {"n": found.n, "n_baseline": found.n_reference}
    return {"ratio": found.value, **sides, "interval": interval_json(found.interval)}


def interval_json(interval: Interval | None) -> list[float] | None:
    """Show an interval as its two ends; null where there is none."""
    return None if interval is None else [interval.low, interval.high]
