"""The metrics of every run, worked out anew from the raw requests in the store.

What stands in trial.json was computed from the same requests by the same formulas when they had
just been measured; so this tells whether the two still belong together, and what a metric that is
newer than a sweep would have been that night.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from settings.workload import Slo
from tasks.domain.measurement import RequestOutcome
from tasks.domain.metrics import FREE, metrics_of
from tasks.domain.requests import UNKNOWN, Requests
from tasks.results.folders import SweepFolder
from tasks.results.records import Damaged, StoredSweep
from tasks.results.schema import REQUESTS
from tasks.results.tables import readable, scan_table

_RUN = ("workload", "level", "repeat")
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "verify_steps")
_TIMES = ("intended_ns", "sent_ns", "end_ns", "first_text_ns")
_CHUNKS = ("arrival_ns", "cumulative_tokens")
_READ = (*_RUN, *_TIMES, *_COUNTS, *_CHUNKS, "outcome", "warmup")
_ROWS = {
    **{name: pl.col(name).fill_null(0) for name in _TIMES},
    **{name: pl.col(name).fill_null(UNKNOWN) for name in _COUNTS},
    "finished": pl.col("outcome") == RequestOutcome.FINISHED.value,
    "lengths": pl.col("arrival_ns").list.len().fill_null(0).cast(pl.Int64),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one level, as its requests tell it."""

    workload: str
    level: str
    repeat: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Recount:
    """The runs of one requests.parquet; `fault` says why it could not be read, if so."""

    path: Path
    runs: tuple[Run, ...] = ()
    fault: str = ""


def recount(paths: Sequence[Path], slos: Mapping[str, Slo] | None = None) -> Iterator[Recount]:
    """Work the runs of each requests.parquet out, in the order of the paths.

    `slos` are the bounds of the workloads by their names. At any time as many files are in memory
    as there are cores, and one more.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield from pool.map(lambda path: _recount(path, slos or {}), paths)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What a sweep's trial.json files say otherwise than its requests, a line a metric.

    `new` names metrics that weren't known when the sweep was measured.
    """

    runs: int
    requests: int
    differences: tuple[str, ...]
    new: tuple[str, ...]
    warnings: tuple[str, ...]


def disagreements(stored: StoredSweep, folder: SweepFolder) -> Disagreement:
    """Hold what a sweep says against its raw requests.

    Left out are metrics that the requests don't hold: the GPUs' energy, and the accept length
    that only the server told.
    """
    slos = {workload.name: workload.slo for workload in stored.sweep.workloads}
    trials = {folder.requests(r.trial.trial_id): r for r in stored.trials}
    there = [path for path in trials if path.exists()]
    gone = [path for path in trials if path not in there and trials[path].levels]
    warnings = [f"{path}: no such file, its runs are not counted" for path in gone]
    runs, requests, differences, new = 0, 0, [], set[str]()
    for found in recount(there, slos):
        if found.fault:
            warnings.append(found.fault)
        told = {(lv.workload, lv.level, lv.repeat): lv for lv in trials[found.path].levels}
        for run in found.runs:
            level = told.get((run.workload, run.level, run.repeat))
            if level is not None:
                name = f"{trials[found.path].trial.label}: {run.workload} {run.level} {run.repeat}"
                differences += [f"{name}: {line}" for line in _differ(level.metrics, run.metrics)]
                new |= run.metrics.keys() - level.metrics.keys()
                runs += 1
                requests += round(run.metrics["completed"] + run.metrics["failed"])
    return Disagreement(runs, requests, tuple(differences), tuple(sorted(new)), tuple(warnings))


def _differ(told: Mapping[str, float], counted: Mapping[str, float]) -> Iterator[str]:
    for name, value in counted.items():
        said = told.get(name)
        if said is not None and not math.isclose(said, value, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{name} was {said:g}, is {value:g}"


def _recount(path: Path, slos: Mapping[str, Slo]) -> Recount:
    try:
        with readable():
            return Recount(path, tuple(_runs(path, slos)))
    except (Damaged, ValueError) as error:  # a ValueError: counts that fall, a level of no kind
        return Recount(path, fault=f"{path}: damaged, left out: {error}")


def _runs(path: Path, slos: Mapping[str, Slo]) -> Iterator[Run]:
    """Read the file whole, each column once, and cut it into runs and what warms up."""
    frame = scan_table(path, REQUESTS).select(_READ).collect()
    requests, warmup = _requests(frame), frame["warmup"].fill_null(value=False).to_numpy()
    for workload, level, repeat, at, count in _bounds(frame):
        first, end = at + int(np.count_nonzero(warmup[at : at + count])), at + count
        if warmup[first:end].any():
            raise Damaged(f"{workload} {level} {repeat}: its warm-up isn't at its beginning")
        slots = int(level[1:]) if level.startswith("c") else None
        metrics = metrics_of(requests.part(first, end), slots, slo=slos.get(workload, FREE))
        yield Run(workload, level, repeat, metrics)


def _requests(frame: pl.DataFrame) -> Requests:
    """Take all rows as they are: of the chunks, which are most of it, none is copied."""
    arrivals, tokens = (frame[name].list.len().fill_null(0) for name in _CHUNKS)
    if not arrivals.equals(tokens):
        raise Damaged("a request has more arrivals than counts of tokens, or fewer")
    rows = frame.select(**_ROWS)
    return Requests(
        **{name: rows[name].to_numpy() for name in _ROWS},
        **{
            name: frame[name].explode(empty_as_null=False, keep_nulls=False).to_numpy()
            for name in _CHUNKS
        },
    )


def _bounds(frame: pl.DataFrame) -> Iterator[tuple[str, str, int, int, int]]:
    """Find the runs of a file, whose rows stand together: where each begins, and its rows."""
    runs = frame.select(_RUN).with_row_index("at").group_by(_RUN, maintain_order=True)
    yield from runs.agg(pl.col("at").min(), pl.len()).iter_rows()
