"""The store: sweeps and trials, written whole and found again.

Reading touches no Parquet and needs no Polars, so that a report is quick.
"""

import platform
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from settings.nearest import suggest
from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult
from tasks.domain.errors import InputError
from tasks.domain.facts import StackReport
from tasks.results.files import DAMAGED, PARTIAL, StoreError, write_whole
from tasks.results.folders import SweepFolder, new_sweep_id
from tasks.results.records import (
    Damaged,
    StoredSweep,
    SweepRecord,
    SweepState,
    dump_record,
    load_record,
    load_trial,
)

LATEST = "latest"
"""The name that stands for the newest sweep of a store."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The sweeps of a store, newest first; `warnings` name what could not be read."""

    sweeps: tuple[SweepRecord, ...]
    warnings: tuple[str, ...] = ()


def create_sweep(
    store: Path,
    sweep: Sweep,
    *,
    now: float,
    versions: Mapping[str, str] | None = None,
    imported_from: str = "",
) -> SweepFolder:
    """Open a new sweep in state `running`; `now` is UTC seconds since the epoch.

    `versions` are added to those of this program and its Python; `imported_from` says whose
    results these are, if not ours. Raises `StoreError`.
    """
    folder = _claim_folder(store, sweep.name, now)
    record = SweepRecord(
        sweep_id=folder.sweep_id,
        sweep=sweep,
        state=SweepState.RUNNING,
        started_at=now,
        updated_at=now,
        versions={**own_versions(), **(versions or {})},
        imported_from=imported_from,
    )
    write_whole(folder.record, dump_record(record))
    return folder


def set_state(folder: SweepFolder, state: SweepState, *, now: float, reason: str = "") -> None:
    """Note how far the sweep is; `running` again after an end means that it was resumed."""
    ended_at = None if state is SweepState.RUNNING else now
    _update(folder, state=state, reason=reason, updated_at=now, ended_at=ended_at)


def set_flow_run(folder: SweepFolder, flow_run: str) -> None:
    """Note which Prefect flow run the sweep belongs to now."""
    _update(folder, flow_run=flow_run)


def sweep_of(store: Path, flow_run: str) -> SweepRecord | None:
    """The sweep that a Prefect flow run ran; None where it had not begun one."""
    found = _sweeps_holding(store, flow_run)
    return next((record for record in found if record.flow_run == flow_run), None)


def note_killed(store: Path, host: str, *, now: float) -> list[SweepRecord]:
    """Note that sweeps of a host were killed which never said how they ended; gives them.

    Only for whoever holds the host's lock: nobody else can be running there.
    """
    left = [
        record
        for record in _sweeps_holding(store, SweepState.RUNNING.value)
        if record.state is SweepState.RUNNING and record.sweep.host == host
    ]
    reason = "killed: it never said how it ended"
    for record in left:
        set_state(SweepFolder(store, record.sweep_id), SweepState.CRASHED, now=now, reason=reason)
    return [replace(record, reason=reason) for record in left]


def record_stack(folder: SweepFolder, report: StackReport, *, now: float) -> None:
    """Keep what was found of a software stack, in place of an older finding of the same one."""
    others = [s for s in load_sweep_record(folder).stacks if s.fingerprint != report.fingerprint]
    _update(folder, stacks=(*others, report), updated_at=now)


def load_sweep(store: Path, name: str) -> StoredSweep:
    """Read a sweep by its id, the beginning of its id, or `latest`.

    Raises `InputError` where there is no such sweep, or its sweep.json is damaged.
    """
    folder = find_sweep(store, name)
    record = load_sweep_record(folder)
    trials, warnings = load_trials(folder)
    warnings += _put_aside(folder)
    if record.state is not SweepState.RUNNING:
        warnings += _unfinished(folder)
    return StoredSweep(record, trials, warnings)


def load_sweep_record(folder: SweepFolder) -> SweepRecord:
    """Read sweep.json alone; raises `InputError` where it is missing or damaged."""
    try:
        return load_record(folder.record.read_bytes())
    except (OSError, Damaged) as error:
        raise InputError(str(folder.record), [f"can't be read: {error}"]) from error


def load_trials(folder: SweepFolder) -> tuple[tuple[TrialResult, ...], tuple[str, ...]]:
    """Read a sweep's trials in the order of their first launch, and name the damaged ones."""
    trials, warnings = [], []
    for path in sorted(folder.trials.glob("*/trial.json")):
        try:
            trials.append(load_trial(path.read_bytes()))
        except (OSError, Damaged) as error:
            warnings.append(f"{path}: damaged, left out: {error}")
    return tuple(sorted(trials, key=_first_launch)), tuple(warnings)


def list_sweeps(store: Path) -> Listing:
    """Read the sweeps of a store, newest first."""
    sweeps, warnings = [], []
    for sweep_id in sweep_ids(store):
        try:
            sweeps.append(load_sweep_record(SweepFolder(store, sweep_id)))
        except InputError as error:
            warnings.append(f"{error}; left out")
    return Listing(tuple(sweeps), tuple(warnings))


def _sweeps_holding(store: Path, word: str) -> Iterator[SweepRecord]:
    """Go through the sweeps whose sweep.json holds a word, newest first.

    All others are passed over unparsed: years of nights cost no more than reading their bytes.
    """
    for sweep_id in sweep_ids(store):
        try:
            content = SweepFolder(store, sweep_id).record.read_bytes()
            if word.encode() in content:
                yield load_record(content)
        except (OSError, Damaged):
            continue


def sweep_ids(store: Path) -> list[str]:
    """Name the sweeps of a store, newest first."""
    return sorted((path.parent.name for path in store.glob("*/sweep.json")), reverse=True)


def find_sweep(store: Path, name: str) -> SweepFolder:
    """Find a sweep by its id, the beginning of its id, or `latest`; raises `InputError`."""
    ids = sweep_ids(store)
    if not ids:
        raise InputError(str(store), ["no sweep in this store yet; `sglang-sweep run` makes one"])
    if name == LATEST:
        return SweepFolder(store, ids[0])
    found = [name] if name in ids else [i for i in ids if name and i.startswith(name)]
    if len(found) > 1:
        raise InputError(str(store), [f"{name!r} begins several sweeps: {', '.join(found)}"])
    if not found:
        hint = suggest(name, ids) or f"; the newest is {ids[0]!r}"
        raise InputError(str(store), [f"no sweep {name!r}{hint}"])
    return SweepFolder(store, found[0])


def find_trial(stored: StoredSweep, name: str) -> TrialResult:
    """Find a trial by its id or the beginning of its id; raises `InputError`."""
    ids = [result.trial.trial_id for result in stored.trials]
    found = [r for r in stored.trials if name and r.trial.trial_id.startswith(name)]
    if len(found) == 1:
        return found[0]
    hint = suggest(name, ids) or f"; it has {', '.join(ids) or 'none'}"
    fault = f"{name!r} begins several trials" if found else f"no trial {name!r}{hint}"
    raise InputError(stored.record.sweep_id, [fault])


def only_trial(stored: StoredSweep, trial_id: str) -> StoredSweep:
    """Leave out all trials but one."""
    kept = tuple(result for result in stored.trials if result.trial.trial_id == trial_id)
    return replace(stored, trials=kept)


def own_versions() -> dict[str, str]:
    """Tell the versions of this program and its Python."""
    try:
        own = version("sglang-sweep")
    except PackageNotFoundError:
        own = "not installed"
    return {"sglang-sweep": own, "python": platform.python_version()}


def _claim_folder(store: Path, name: str, now: float) -> SweepFolder:
    """Make a folder that nobody else has, even where two sweeps start in the same second."""
    while True:
        folder = SweepFolder(store, new_sweep_id(name, now, secrets.token_hex(2)))
        try:
            folder.path.mkdir(parents=True)
        except FileExistsError:
            if not folder.path.is_dir():
                raise
        except OSError as error:
            raise StoreError(folder.path, error) from error
        else:
            return folder


def _update(folder: SweepFolder, **changes: object) -> None:
    record = replace(load_sweep_record(folder), **changes)  # type: ignore[arg-type]
    write_whole(folder.record, dump_record(record))


def _first_launch(result: TrialResult) -> tuple[float, str]:
    first = min((attempt.started_at for attempt in result.attempts), default=float("inf"))
    return first, result.trial.trial_id


def _put_aside(folder: SweepFolder) -> tuple[str, ...]:
    """Name files that could not be read when more was to be added to them."""
    found = sorted(folder.trials.glob(f"*/*{DAMAGED}"))
    return tuple(f"{path}: was damaged and put aside; its requests are missing" for path in found)


def _unfinished(folder: SweepFolder) -> tuple[str, ...]:
    """Name what an end in the middle of something left behind."""
    partial = sorted(folder.path.rglob(f"*{PARTIAL}"))
    lost = sorted(p for p in folder.trials.glob("*/") if not (p / "trial.json").exists())
    return (
        *(f"{path}: left by a write that was interrupted; ignored" for path in partial),
        *(f"{path}: no trial.json, the trial was never finished; left out" for path in lost),
    )
