"""The store's tables for other tools."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tasks.results.folders import SweepFolder
from tasks.results.records import Damaged
from tasks.results.schema import METRICS, SUMMARY, polars_schema
from tasks.results.store import sweep_ids
from tasks.results.tables import scan_table


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows that are read when they are asked for; `warnings` name the files left out."""

    rows: pl.LazyFrame
    warnings: tuple[str, ...] = ()


def scan_summary(store: Path) -> Scan:
    """Scan the summaries of all sweeps of a store, oldest first.

    Sweeps with other axes have other `axis_` columns: each row has all of them, null where its
    sweep had no such axis. An axis that is numbers in one sweep and text in another is text.
    """
    frames, warnings = [], []
    for sweep_id in reversed(sweep_ids(store)):
        path = SweepFolder(store, sweep_id).summary
        if not path.exists():
            continue
        try:
            frames.append(scan_table(path, (*SUMMARY, *METRICS)))
        except Damaged as error:
            warnings.append(f"{path}: damaged, left out: {error}")
    if not frames:
        return Scan(pl.LazyFrame(schema=polars_schema(SUMMARY)), tuple(warnings))
    return Scan(pl.concat(_one_schema(frames), how="diagonal_relaxed"), tuple(warnings))


def _one_schema(frames: list[pl.LazyFrame]) -> list[pl.LazyFrame]:
    """Turn columns that are text in one frame and something else in another into text."""
    schemas = [frame.collect_schema() for frame in frames]
    mixed = {
        name
        for schema in schemas
        for name, kind in schema.items()
        if kind == pl.String() and any(s.get(name, kind) != kind for s in schemas)
    }
    return [
        frame.with_columns(pl.col(n).cast(pl.String) for n in sorted(mixed & set(schema)))
        for frame, schema in zip(frames, schemas, strict=True)
    ]
