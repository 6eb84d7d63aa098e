"""Parquet files of the store: written with their layout's number, read whatever their layout.

A file that an older version wrote lacks columns of today: they read as null. A column that bore
another name then reads under today's. What can't be read is named in one line.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from tasks.results.records import SCHEMA_VERSION, Damaged, newer_layout
from tasks.results.schema import Column, polars_schema

LAYOUT = "sglang-sweep.layout"
"""The key of the layout's number in a file's own metadata; a file without it is of layout 1."""

_PARQUET_ERRORS = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What Polars raises for bytes that are no Parquet; it panics at some, which is no `Exception`."""


def write_table(frame: pl.LazyFrame, path: Path | str) -> None:
    """Write Parquet to a path or a URL; what the system refuses is an OSError, as Polars' may not
    be.
    """
    metadata = {LAYOUT: str(SCHEMA_VERSION)}
    try:
        frame.sink_parquet(path, compression="zstd", metadata=metadata)
    except pl.exceptions.ComputeError as error:
        raise OSError(None, str(error)) from error


def scan_table(path: Path, columns: Iterable[Column]) -> pl.LazyFrame:
    """Scan a file in today's layout: `columns` first, then what else it has.

    Raises `Damaged`: no Parquet, a newer layout, a needed column missing, or of another type. The
    rows are read later, within `readable`.
    """
    with readable():
        _check_layout(path)
        frame = pl.scan_parquet(path)
        return in_todays_layout(frame, tuple(columns))


def in_todays_layout(frame: pl.LazyFrame, columns: tuple[Column, ...]) -> pl.LazyFrame:
    """Give every column its name of today, and null to those that the file lacks."""
    found = frame.collect_schema()
    names = {
        old: column.name
        for column in columns
        for old in column.once
        if old in found and column.name not in found
    }
    frame = frame.rename(names)
    found = frame.collect_schema()
    for column, kind in zip(columns, polars_schema(columns).values(), strict=True):
        _check_column(column, kind, found)
    schema = polars_schema(columns)
    ours = [_column(name, kind, found) for name, kind in schema.items()]
    return frame.select(*ours, *(pl.col(name) for name in found if name not in schema))


@contextmanager
def readable() -> Iterator[None]:
    """Turn what Polars raises at bytes that are no Parquet into `Damaged`."""
    try:
        yield
    except _PARQUET_ERRORS as error:
        lines = str(error).strip().splitlines()
        raise Damaged(lines[0] if lines else type(error).__name__) from error


def _check_layout(path: Path) -> None:
    version = pl.read_parquet_metadata(path).get(LAYOUT, "1")
    if not version.isdigit():
        raise Damaged(f"layout {version!r} is no number")
    newer_layout(int(version))


def _check_column(column: Column, kind: pl.DataType, found: pl.Schema) -> None:
    if column.name not in found:
        if column.needed:
            raise Damaged(f"no column {column.name}: not one of our files")
    elif found[column.name] not in (kind, pl.Null()):
        raise Damaged(f"column {column.name} is {found[column.name]}, not {column.kind}")


def _column(name: str, kind: pl.DataType, found: pl.Schema) -> pl.Expr:
    if name in found:
        return pl.col(name) if found[name] == kind else pl.col(name).cast(kind)
    return pl.lit(None, kind).alias(name)
