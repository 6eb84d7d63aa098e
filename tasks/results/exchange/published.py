"""A sweep's tables on object storage, or in another folder: what Polars and DuckDB read there.

A sweep is measured into a local folder: claiming a folder, replacing a file whole and holding a
host's lock need a file system. What is over can be published. An object appears whole or not at
all there by itself, so nothing is renamed.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tasks.domain.errors import InputError, SweepError
from tasks.results.files import replacing
from tasks.results.folders import SweepFolder
from tasks.results.records import Damaged
from tasks.results.schema import GPU, METRICS, REQUESTS, SUMMARY, Column
from tasks.results.tables import scan_table, write_table

_URL = re.compile(r"^(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<bucket>[^/]*)")
_SCHEMES = {
    "s3": "AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; AWS_ENDPOINT_URL for another "
    "than Amazon's",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
}
"""The storages that are spoken to, with the variables that say how."""


class NotPublished(SweepError):
    """Object storage refused: names bucket, reason and way out."""

    def __init__(self, url: str, cause: BaseException) -> None:
        found = _URL.match(url)
        scheme, bucket = (found["scheme"], found["bucket"]) if found else ("", url)
        super().__init__(
            f"{url}: not written ({_reason(cause)}); is there a bucket {bucket!r} that may be "
            f"written to? Its account comes from {_SCHEMES.get(scheme, 'the environment')}"
        )


def is_url(target: str) -> bool:
    """Whether a target is on object storage."""
    return _URL.match(target) is not None


def publish(folder: SweepFolder, target: str) -> tuple[int, tuple[str, ...]]:
    """Write a sweep's tables below `target/<sweep_id>`, in today's layout.

    Returns how many, and names what could not be read. Raises `InputError`, `NotPublished` and
    `StoreError`.
    """
    _check_scheme(target)
    count, warnings = 0, []
    for path, columns in _tables(folder):
        place = f"{target.rstrip('/')}/{folder.sweep_id}/{path.relative_to(folder.path)}"
        try:
            frame = scan_table(path, columns)
        except Damaged as error:
            warnings.append(f"{path}: damaged, left out: {error}")
            continue
        _write(frame, place)
        count += 1
    return count, tuple(warnings)


def _check_scheme(target: str) -> None:
    found = _URL.match(target)
    if found and found["scheme"] not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise InputError(target, [f"no storage that is known; there are {known} and folders"])
    if found and not found["bucket"]:
        raise InputError(target, [f"names no bucket: {found['scheme']}://BUCKET/FOLDER"])


def _tables(folder: SweepFolder) -> Iterator[tuple[Path, tuple[Column, ...]]]:
    if folder.summary.exists():
        yield folder.summary, (*SUMMARY, *METRICS)
    for path in sorted(folder.trials.glob("*/requests.parquet")):
        yield path, REQUESTS
    for path in sorted(folder.trials.glob("*/*/gpu.parquet")):
        yield path, GPU


def _write(frame: pl.LazyFrame, place: str) -> None:
    if not is_url(place):
        with replacing(Path(place)) as partial:
            write_table(frame, partial)
        return
    try:
        write_table(frame, place)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise NotPublished(place, error) from error


def _reason(cause: BaseException) -> str:
    """The storage's own code and message, out of the XML that it answers with."""
    text = str(cause)
    code, message = (re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S) for tag in ("Code", "Message"))
    if code and message:
        return f"{code[1]}: {message[1].strip()}"
    status = re.search(r"status code: (\d+ [A-Z][\w ]*)", text)
    return status[1] if status else (text.strip().splitlines() or [type(cause).__name__])[0][:200]
