"""Write a sweep for another tool."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Literal

import polars as pl

from tasks.domain.errors import InputError
from tasks.results.exchange import aiperf, bench_serving, vllm
from tasks.results.exchange.runs import Json, StoredRun, runs_of
from tasks.results.files import write_whole
from tasks.results.folders import SweepFolder
from tasks.results.frames import summary_frame, trial_rows
from tasks.results.records import StoredSweep

Format = Literal["bench-serving", "vllm", "aiperf", "csv"]


def export(
    stored: StoredSweep, folder: SweepFolder, to: Format, target: Path, *, details: bool = False
) -> tuple[int, str]:
    """Write every run of a sweep; returns how many, and where.

    `bench-serving` and `csv` are one file, `vllm` and `aiperf` a folder. `details` adds each
    request to bench_serving's lines. Raises `InputError` where there is nothing to write or the
    target is there already, `Damaged` where the requests can't be read, and `StoreError`.
    """
    runs = list(runs_of(stored))
    if not runs:
        raise InputError(stored.record.sweep_id, ["it has measured nothing: there is no run"])
    if target.exists():
        raise InputError(str(target), ["exists already: name another target, or remove it"])
    if details and to != "bench-serving":
        raise InputError("export", [f"--details: {to} has none; say --format bench-serving"])
    for path, content in _files(stored, folder, runs, to, target, details=details):
        write_whole(path, content)
    return len(runs), str(target)


def _files(
    stored: StoredSweep,
    folder: SweepFolder,
    runs: list[StoredRun],
    to: Format,
    target: Path,
    *,
    details: bool,
) -> Iterator[tuple[Path, bytes]]:
    match to:
        case "bench-serving":
            lines = (_line(run, folder, details=details) for run in runs)
            yield target, b"".join(_json(line) + b"\n" for line in lines)
        case "csv":
            yield target, _csv(stored).encode()
        case "vllm":
            for name, objects in _combinations(runs):
                for file, found in objects.items():
                    yield target / name / file, _json(found, indent=4)
                yield target / name / "summary.json", _json([*objects.values()], indent=4)
        case "aiperf":
            for run in runs:
                name = re.sub(r"[^\w.-]", "_", f"{run.level.workload}-{run.level.level}")
                place = target / run.result.trial.trial_id / f"{name}-{run.level.repeat}"
                yield place / aiperf.FILE, _json(aiperf.write_run(run), indent=2)


def _line(run: StoredRun, folder: SweepFolder, *, details: bool) -> Json:
    path = folder.requests(run.result.trial.trial_id)
    if details and not path.exists():
        raise InputError(str(path), ["is gone, and the details with it: leave --details out"])
    return bench_serving.write_line(run, path if details else None)


def _combinations(runs: Iterable[StoredRun]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Put the repeats of a combination into one folder, numbered from 0 as vLLM does."""
    for name, group in groupby(sorted(runs, key=vllm.combination), vllm.combination):
        objects = [vllm.write_run(run) for run in group]
        numbered = enumerate(objects)
        yield name, {f"run={i}.json": {**found, "run_number": i} for i, found in numbered}


def _csv(stored: StoredSweep) -> str:
    """The summary; a list becomes text, its items apart by a semicolon."""
    frame = summary_frame(trial_rows(stored.record, each) for each in stored.trials)
    lists = pl.selectors.by_dtype(pl.List(pl.String()))
    return frame.with_columns(lists.list.join("; ")).write_csv()


def _json(content: object, indent: int | None = None) -> bytes:
    """Write what Python's own `json` writes, as these tools do: an endless rate is `Infinity`."""
    return json.dumps(content, indent=indent).encode()
