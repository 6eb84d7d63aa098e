"""Results as Polars frames, and the frames as Parquet files."""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tasks.domain.configuration import Attempt, TrialResult, Value
from tasks.domain.measurement import LevelResult, RequestRecord
from tasks.results.attempts import measured_attempt
from tasks.results.files import DAMAGED, replacing
from tasks.results.folders import SweepFolder
from tasks.results.records import Damaged, SweepRecord
from tasks.results.schema import AXIS, METRICS, REQUESTS, SUMMARY, polars_schema
from tasks.results.tables import scan_table, write_table

_RUN = ("workload", "level", "repeat")
"""What names one run of one level within a trial."""

_Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class TrialRows:
    """What one trial adds to the summary: a row a run, and what columns that takes."""

    axes: Mapping[str, Value]
    metrics: frozenset[str]
    rows: tuple[_Row, ...]


def save_requests(folder: SweepFolder, result: TrialResult) -> None:
    """Add the records that the result carries to the trial's requests.parquet.

    The file is streamed into its successor, so memory holds the new requests only.
    """
    fresh = [level for level in result.levels if level.records]
    if not fresh:
        return
    path = folder.requests(result.trial.trial_id)
    frame = requests_frame(fresh)
    runs = frame.select(_RUN).unique().lazy()
    kept = [
        earlier.join(runs, on=_RUN, how="anti", maintain_order="left") for earlier in _earlier(path)
    ]
    with replacing(path) as partial:
        write_table(pl.concat([*kept, frame.lazy()]), partial)


def _earlier(path: Path) -> Iterator[pl.LazyFrame]:
    """Scan what a trial has already; a file that can't be read is put aside, not overwritten."""
    if path.exists():
        try:
            yield scan_table(path, REQUESTS)
        except Damaged:
            path.replace(path.with_name(path.name + DAMAGED))


def save_summary(folder: SweepFolder, trials: Iterable[TrialRows]) -> None:
    """Write summary.parquet anew: small, and it can't drift from trial.json."""
    frame = summary_frame(trials)
    with replacing(folder.summary) as partial:
        write_table(frame.lazy(), partial)


def requests_frame(levels: Iterable[LevelResult]) -> pl.DataFrame:
    """Lay out requests a row each; by column, since the chunks of a row are a hundred values."""
    rows = [(level, record) for level in levels for record in level.records]
    return pl.DataFrame(
        [_requests_column(name, kind, rows) for name, kind in polars_schema(REQUESTS).items()]
    )


def _requests_column(
    name: str, kind: pl.DataType, rows: Sequence[tuple[LevelResult, RequestRecord]]
) -> pl.Series:
    values = [getattr(level if name in _RUN else record, name) for level, record in rows]
    if isinstance(kind, pl.List):  # Polars makes nothing of Python's own arrays
        values = [value.tolist() if isinstance(value, array) else value for value in values]
    return pl.Series(name, values, kind)


def trial_rows(record: SweepRecord, result: TrialResult) -> TrialRows:
    """Lay out the runs of one trial, a row each."""
    rows = tuple(_summary_row(record, result, level) for level in result.levels)
    metrics = frozenset(name for level in result.levels for name in level.metrics)
    return TrialRows(result.trial.axes if rows else {}, metrics, rows)


def summary_frame(trials: Iterable[TrialRows]) -> pl.DataFrame:
    """Lay out every run of every level a row, with axes and metrics as columns."""
    trials = list(trials)
    known = [column.name for column in METRICS]
    written = frozenset[str]().union(*(trial.metrics for trial in trials))
    metrics = [*known, *sorted(written.difference(known))]
    axes = _axis_columns([trial.axes for trial in trials])
    schema = {**polars_schema(SUMMARY), **axes, **dict.fromkeys(metrics, pl.Float64())}
    rows = [row for trial in trials for row in trial.rows]
    return pl.DataFrame(rows, schema=schema, orient="row", strict=False)


def _summary_row(record: SweepRecord, result: TrialResult, level: LevelResult) -> _Row:
    attempt = measured_attempt(result, level.repeat)
    return {
        "sweep_id": record.sweep_id,
        "sweep": record.sweep.name,
        "host": record.sweep.host,
        "imported_from": record.imported_from or None,
        **dict(_trial_values(result)),
        **dict(_attempt_values(attempt)),
        "workload": level.workload,
        "level": level.level,
        "max_concurrency": level.concurrency,
        "request_rate": level.request_rate,
        "repeat": level.repeat,
        "search": level.search.value or None,
        "verdict": level.verdict.validity.value,
        "reasons": list(level.verdict.reasons),
        "load_from": level.client.get("load_from"),
        "load_path": level.client.get("load_path"),
        **{AXIS + name: _axis_value(value) for name, value in result.trial.axes.items()},
        **level.metrics,
    }


def _trial_values(result: TrialResult) -> Iterator[tuple[str, object]]:
    yield "trial_id", result.trial.trial_id
    yield "baseline", result.trial.baseline
    yield "model_path", result.trial.configuration.model_path
    yield "fingerprint", result.fingerprint
    yield "trial_verdict", result.verdict.value
    yield "trial_reason", result.reason
    yield "altered", result.altered
    yield "remedies", [remedy.summary for remedy in result.remedies]


def _attempt_values(attempt: Attempt | None) -> Iterator[tuple[str, object]]:
    if attempt is not None:
        yield "attempt", attempt.number
        yield "stack", attempt.stack
        yield "started_at", attempt.started_at
        yield "ready_s", attempt.ready_s


def _axis_columns(trials: Sequence[Mapping[str, Value]]) -> dict[str, pl.DataType]:
    names = dict.fromkeys(name for axes in trials for name in axes)
    values = {name: [axes[name] for axes in trials if name in axes] for name in names}
    return {AXIS + name: _axis_type(values[name]) for name in names}


def _axis_type(values: Sequence[Value]) -> pl.DataType:
    """Keep the type of an axis whose values share one; text for all others."""
    match {type(value) for value in values if value is not None}:
        case kinds if kinds == {bool}:
            return pl.Boolean()
        case kinds if kinds == {int}:
            return pl.Int64()
        case kinds if kinds and kinds <= {int, float}:
            return pl.Float64()
        case _:
            return pl.String()


def _axis_value(value: Value) -> object:
    return json.dumps(value) if isinstance(value, list) else value
