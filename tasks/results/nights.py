"""The nights of one sweep as a board: what each configuration measured in each cell, each night.

Read from the summaries, so that it costs milliseconds a night however many requests there were.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from settings.sweep import Sweep
from tasks.domain.configuration import TrialVerdict, axes_label
from tasks.domain.errors import InputError
from tasks.domain.measurement import Validity
from tasks.results.cells import Cell
from tasks.results.folders import SweepFolder, slug
from tasks.results.records import Damaged, SweepRecord, SweepState
from tasks.results.schema import AXIS, SUMMARY
from tasks.results.shifts import Floats
from tasks.results.store import load_sweep_record, sweep_ids
from tasks.results.tables import readable, scan_table

MOST_NIGHTS = 90
"""How far back the noise is learned."""

_RUN = ("trial_id", "workload", "level", "repeat")
_PLACE = ("trial_id", "baseline", "altered_by", "load_path", "workload", "level")


_LEVELS = {"concurrency", "request_rate"}
_JUDGES = {*_LEVELS, "slo"}


@dataclass(frozen=True, slots=True)
class Series:
    """What is the same thing night after night: one configuration in one cell, one metric.

    `load` is a hash of the workload's settings, `load_path` the way the load took, `altered_by`
    the remedies that changed what was measured. Where any of them changes, a new series begins.
    """

    trial_id: str
    cell: Cell
    metric: str
    load: str
    load_path: str | None = None
    altered_by: str = ""
    baseline: bool = field(default=False, compare=False)
    label: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Board:
    """Nights x series; a value is the mean over the night's runs, NaN where there was none.

    `warnings` name each file that could not be read.
    """

    nights: tuple[SweepRecord, ...]
    series: tuple[Series, ...]
    values: Floats
    warnings: tuple[str, ...] = ()


def past_nights(
    store: Path, name: str, host: str, until: str, most: int = MOST_NIGHTS
) -> tuple[tuple[SweepRecord, ...], tuple[str, ...]]:
    """Find the sweeps of a name on a host up to the one called `until`, the oldest first.

    A sweep that still runs is left out unless it is the last one. Also returns what could not be
    read.
    """
    found: list[SweepRecord] = []
    warnings = []
    for sweep_id in sweep_ids(store):
        if sweep_id > until or f"-{slug(name)}-" not in sweep_id:
            continue
        try:
            record = load_sweep_record(SweepFolder(store, sweep_id))
        except InputError as error:
            warnings.append(f"{error}; left out")
            continue
        over = record.state is not SweepState.RUNNING or sweep_id == until
        if over and (record.sweep.name, record.sweep.host) == (name, host):
            found.append(record)
        if len(found) == most:
            break
    return tuple(reversed(found)), tuple(warnings)


def read_board(store: Path, nights: Sequence[SweepRecord], metrics: Sequence[str]) -> Board:
    """Read metrics of every measured configuration in every cell from the nights' summaries.

    Trials that aren't simply `measured`, and invalid runs, are left out.
    """
    rows: list[dict[Series, float]] = []
    warnings = []
    for night in nights:
        path = SweepFolder(store, night.sweep_id).summary
        try:
            with readable():
                rows.append(dict(_night(path, night.sweep, metrics)) if path.exists() else {})
        except Damaged as error:
            warnings.append(f"{path}: damaged, left out: {error}")
            rows.append({})
    series = tuple(dict.fromkeys(each for row in rows for each in row))
    values = np.array([[row.get(each, np.nan) for each in series] for row in rows], dtype=float)
    shaped = values.reshape(len(rows), len(series))
    return Board(tuple(nights), series, shaped, tuple(warnings))


def _night(path: Path, sweep: Sweep, metrics: Sequence[str]) -> Iterator[tuple[Series, float]]:
    loads = _loads(sweep)
    scan = scan_table(path, SUMMARY)
    written = scan.collect_schema().names()
    measured = [name for name in dict.fromkeys(metrics) if name in written]
    axes = [name for name in written if name.startswith(AXIS)]
    frame = (
        scan.filter(
            pl.col("trial_verdict") == TrialVerdict.MEASURED.value,
            pl.col("verdict") != Validity.INVALID.value,
        )
        .unique(_RUN, keep="last", maintain_order=True)
        .with_columns(
            altered_by=pl.when("altered").then(pl.col("remedies").list.join(", ")).otherwise(None)
        )
        .group_by(_PLACE, maintain_order=True)
        .agg(pl.col(measured).mean(), pl.col(axes).first())
        .collect()
    )
    for row in frame.iter_rows(named=True):
        cell = Cell(row["workload"], row["level"])
        altered = row["altered_by"] or ""
        load, way = loads.get(cell.workload, ""), row["load_path"]
        axis_values = {name.removeprefix(AXIS): row[name] for name in axes}
        named = {"baseline": row["baseline"], "label": axes_label(axis_values)}
        for metric in measured:
            if row[metric] is not None:
                place = (row["trial_id"], cell, metric, load, way, altered)
                yield Series(*place, **named), row[metric]


def _loads(sweep: Sweep) -> Mapping[str, str]:
    """Hash what each workload asks; levels are cells of their own.

    An SLO only judges, unless a search looks for the largest level that keeps it.
    """
    return {
        workload.name: hashlib.sha256(
            json.dumps(
                workload.model_dump(
                    mode="json", exclude=_JUDGES if workload.largest is None else _LEVELS
                ),
                sort_keys=True,
            ).encode()
        ).hexdigest()[:12]
        for workload in sweep.workloads
    }
