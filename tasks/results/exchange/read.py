"""Take what another tool has measured into the store, as a sweep that says so.

Such a trial is `suspect`, and so is each of its runs: nobody here saw the server, judged the
load or checked an answer. The stack is unknown. So it can be looked at and compared, but is
never among the nights of a sweep and never decides anything.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from pydantic import ValidationError

from settings.sweep import Sweep
from tasks.domain.configuration import (
    ServerConfiguration,
    Trial,
    TrialResult,
    TrialVerdict,
)
from tasks.domain.errors import InputError
from tasks.domain.measurement import LevelResult, RunVerdict, Validity
from tasks.results.exchange import bench_serving, vllm
from tasks.results.exchange.runs import ForeignRun, Json
from tasks.results.folders import SweepFolder
from tasks.results.records import SweepState
from tasks.results.saving import TrialStore
from tasks.results.store import create_sweep, set_state

HOST = "imported"
"""The host of what was measured elsewhere; no host of the settings."""

_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def read_paths(paths: Sequence[Path]) -> list[ForeignRun]:
    """Read files of bench_serving (JSON lines) and of vLLM (JSON), and folders of vLLM's sweeps.

    Raises `InputError` that names the file, and the line, of what is neither.
    """
    objects = {place: found for path in paths for place, found in _objects(path)}
    ours = {place: found for place, found in objects.items() if not vllm.is_run(found)}
    theirs = {place: found for place, found in objects.items() if vllm.is_run(found)}
    return [*bench_serving.read_lines(ours), *vllm.read_runs(theirs)]


def import_runs(
    store: Path, runs: Sequence[ForeignRun], name: str, *, now: float, workload: str | None = None
) -> SweepFolder:
    """Make a sweep of runs; `workload` names theirs, where a comparison needs the same name.

    What one configuration measured in one cell several times are its repeats. Raises
    `InputError` and `StoreError`.
    """
    named = [(_workload_name(run, workload), run) for run in runs]
    folder = create_sweep(store, _sweep(named, name), now=now, imported_from=_sources(runs))
    trials = TrialStore(folder)
    for axes, group in groupby(sorted(named, key=_configuration), _configuration):
        trials.save(_trial(axes, list(group)))
    set_state(folder, SweepState.COMPLETED, now=now, reason=f"imported from {_sources(runs)}")
    return folder


def _objects(path: Path) -> Iterator[tuple[str, Json]]:
    if path.is_dir():
        found = [*vllm.runs_below(path), *sorted(path.rglob("*.jsonl"))]
        if not found:
            raise InputError(str(path), ["no run=N.json of vllm bench sweep and no .jsonl in it"])
        for each in found:
            yield from _objects(each)
        return
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), [f"can't be read: {error}"]) from error
    if path.suffix == ".jsonl":
        lines = [(f"{path}:{n}", line) for n, line in enumerate(content.splitlines(), 1) if line]
    else:
        lines = [(str(path), content)]
    if not lines:
        raise InputError(str(path), ["is empty"])
    for place, line in lines:
        yield place, _object(place, line)


def _object(place: str, text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(place, [f"no JSON: {error}"]) from error
    if not isinstance(found, dict):
        raise InputError(place, ["no JSON object; --output-file of bench_serving has one a line"])
    return found


def _workload_name(run: ForeignRun, wanted: str | None) -> str:
    """Name a run's workload; open and closed loops are two, as a sweep file has them."""
    name = wanted or _NAMES.sub("-", run.dataset)
    return name if run.request_rate is None else f"{name}-rate" if wanted is None else name


def _sweep(runs: Sequence[tuple[str, ForeignRun]], name: str) -> Sweep:
    models = sorted({run.model_path for _, run in runs})
    workloads = [
        _workload(each, [run for of, run in runs if of == each])
        for each in dict.fromkeys(of for of, _ in runs)
    ]
    content = {
        "name": _NAMES.sub("-", name),
        "host": HOST,
        "server": {"model_path": models[0]},
        "workloads": workloads,
        "objective": {"workload": workloads[0]["name"]},
    }
    try:
        return Sweep.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError("import", [f"{place}: {first['msg']}"]) from error


def _workload(name: str, runs: Sequence[ForeignRun]) -> Json:
    closed = sorted({run.concurrency for run in runs if run.concurrency is not None})
    opened = sorted({run.request_rate for run in runs if run.request_rate is not None})
    if closed and opened:
        fault = f"--workload {name}: it would have levels of concurrency and of request rate"
        raise InputError("import", [f"{fault}; import the two apart"])
    asked = {key: value for run in runs for key, value in run.asked.items()}
    # A sweep file's workload keeps its slots busy; whoever measured this may not have.
    fullest = max(closed, default=1)
    asked["requests"] = -(-asked.get("requests", 1) // fullest) * fullest
    return {"name": name, "concurrency": closed, "request_rate": opened, **asked}


def _configuration(named: tuple[str, ForeignRun]) -> str:
    return json.dumps([named[1].model_path, dict(named[1].axes)], sort_keys=True)


def _trial(key: str, runs: Sequence[tuple[str, ForeignRun]]) -> TrialResult:
    first = runs[0][1]
    why = f"imported from {first.tool}: nobody here saw its server or judged its load"
    verdict = RunVerdict(Validity.SUSPECT, (why,))
    levels: list[LevelResult] = []
    for workload, run in runs:
        cell = workload, run.concurrency, run.request_rate
        before = sum((r.workload, r.concurrency, r.request_rate) == cell for r in levels)
        facts = {"engine": run.tool, "place": run.place}
        levels.append(LevelResult(*cell, before + 1, run.metrics, verdict, client=facts))
    digest = hashlib.sha256(f"imported {key}".encode()).hexdigest()[:12]
    configuration = ServerConfiguration(first.model_path, dict(first.axes))
    return TrialResult(
        trial=Trial(digest, dict(first.axes), configuration),
        verdict=TrialVerdict.SUSPECT,
        reason=why,
        levels=tuple(levels),
        repeats_done=max(level.repeat for level in levels),
    )


def _sources(runs: Sequence[ForeignRun]) -> str:
    """Name the files, without their folders: a store travels."""
    names: Mapping[str, None] = dict.fromkeys(Path(run.place).name.split(":")[0] for run in runs)
    shown = [*names][:3]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{runs[0].tool}: {', '.join(shown)}{more}"
