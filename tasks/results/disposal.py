"""Giving room back: the raw requests of old sweeps, never what is concluded from them.

What a sweep concluded stands in sweep.json, trial.json and summary.parquet, which stay.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.domain.errors import InputError
from tasks.results.files import StoreError
from tasks.results.folders import SweepFolder
from tasks.results.records import SweepRecord, SweepState
from tasks.results.store import list_sweeps


@dataclass(frozen=True, slots=True)
class RawRequests:
    """The raw requests of one sweep: one file a trial; `size_bytes` is their sum."""

    sweep_id: str
    started_at: float
    size_bytes: int
    files: tuple[Path, ...]


def raw_requests(store: Path) -> tuple[tuple[RawRequests, ...], tuple[str, ...]]:
    """Find the raw requests of all sweeps that are over, the newest first.

    A sweep that runs may still be measuring, and one whose sweep.json can't be read might: both
    are left alone. Also returns what could not be read.
    """
    listing = list_sweeps(store)
    over = (record for record in listing.sweeps if record.state is not SweepState.RUNNING)
    found = (_of(store, record) for record in over)
    return tuple(raw for raw in found if raw.files), listing.warnings


def choose(
    found: Iterable[RawRequests],
    *,
    now: float,
    older_than_s: float | None = None,
    keep_bytes: int | None = None,
) -> tuple[RawRequests, ...]:
    """Choose what to delete: older than an age, or beyond a total size, the oldest first.

    Of sweeps from the newest on, those are kept whose sizes together are at most `keep_bytes`;
    once one doesn't fit, no older one is kept. `now` is UTC seconds since the epoch.
    """
    chosen, kept, full = [], 0, False
    for raw in sorted(found, key=lambda raw: raw.sweep_id, reverse=True):
        full = full or (keep_bytes is not None and kept + raw.size_bytes > keep_bytes)
        old = older_than_s is not None and now - raw.started_at > older_than_s
        if old or full:
            chosen.append(raw)
        else:
            kept += raw.size_bytes
    return tuple(reversed(chosen))


def delete(chosen: Sequence[RawRequests]) -> None:
    """Delete the files; one that is gone already is no fault. Raises `StoreError`."""
    for path in (path for raw in chosen for path in raw.files):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(path, error) from error


def read_size(text: str) -> int:
    """Read `500MB`, `20GB` or `1TB`, powers of 1000, into bytes; raises `InputError`."""
    number = text.strip().upper().removesuffix("B")
    unit = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}.get(number[-1:], 1)
    try:
        size = float(number[:-1] if unit > 1 else number) * unit
        if not 0 <= size < 10**18:
            raise ValueError(size)
    except ValueError as error:
        raise InputError("gc", [f"--keep: {text!r} is no size such as 500MB or 20GB"]) from error
    return int(size)


def _of(store: Path, record: SweepRecord) -> RawRequests:
    folder = SweepFolder(store, record.sweep_id)
    files = tuple(sorted(folder.trials.glob("*/requests.parquet")))
    size = sum(path.stat().st_size for path in files)
    return RawRequests(record.sweep_id, record.started_at, size, files)
