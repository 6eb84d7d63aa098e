"""What a sweep begins with: what is asked for, and what the store already has of it."""

import time
from pathlib import Path

from settings.sweep import Sweep
from settings.sweep_file import read_sweep
from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.errors import InputError
from tasks.load.datasets import check_files
from tasks.results.folders import SweepFolder
from tasks.results.frames import save_summary, trial_rows
from tasks.results.records import SweepState
from tasks.results.store import create_sweep, find_sweep, load_sweep, load_sweep_record, set_state
from tasks.search.grid import plan_trials

_MAY_CHANGE = {"search", "retry", "timeouts"}
"""What a sweep may be resumed with otherwise than it began: it changes no number."""

_TRY_AGAIN = (TrialVerdict.PENDING, TrialVerdict.STOPPED, TrialVerdict.FAILED)


def requested(asked: Sweep | str | None, resume: str | None, store: Path) -> Sweep:
    """The sweep to run: as given, from its file, or as it stands in the store.

    Raises `InputError` where a file that a workload names can't be read, or where a sweep is
    resumed with another content than it began with.
    """
    given = read_sweep(Path(asked)) if isinstance(asked, str) else asked
    if resume is None:
        if given is None:
            raise InputError("run", ["give a sweep file, or --resume with a sweep's id"])
        for workload in given.workloads:
            check_files(workload)
        return given
    stored = load_sweep_record(find_sweep(store, resume)).sweep
    if given is None:
        return stored
    changed = [
        name
        for name in Sweep.model_fields
        if name not in _MAY_CHANGE and getattr(given, name) != getattr(stored, name)
    ]
    if changed:
        fault = f"{', '.join(changed)} changed since; start a new sweep, or leave the file out"
        raise InputError(f"resume {resume}", [fault])
    return given


def open_results(
    store: Path, asked: Sweep, resume: str | None
) -> tuple[SweepFolder, dict[str, TrialResult]]:
    """A folder in the store, and every trial of the sweep with what is known of it."""
    fresh = {
        trial.trial_id: TrialResult(trial, TrialVerdict.PENDING) for trial in plan_trials(asked)
    }
    if resume is None:
        return create_sweep(store, asked, now=time.time()), fresh
    folder = find_sweep(store, resume)
    set_state(folder, SweepState.RUNNING, now=time.time())
    stored = load_sweep(store, folder.sweep_id)
    # The run before may have been killed between the last trial and its rows in the summary.
    save_summary(folder, (trial_rows(stored.record, result) for result in stored.trials))
    kept = {result.trial.trial_id: result for result in stored.trials}
    return folder, {trial_id: kept.get(trial_id, result) for trial_id, result in fresh.items()}


def is_due(result: TrialResult, repeat: int) -> bool:
    """Whether a trial is to be measured in this round."""
    given_up = result.verdict in (TrialVerdict.PRUNED, TrialVerdict.INCORRECT)
    return not given_up and (result.repeats_done < repeat or result.verdict in _TRY_AGAIN)
