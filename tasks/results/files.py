"""Files that appear whole or not at all."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.domain.errors import SweepError

PARTIAL = ".partial"
"""The ending of a file that is being written; one that stays was left by an interrupted write."""

DAMAGED = ".damaged"
"""The ending of a file that could not be read when another was to take its place."""

_WAYS_OUT = {
    errno.ENOSPC: "the disk is full: free some space, then resume the sweep",
    errno.EDQUOT: "the disk quota is used up: free some space, then resume the sweep",
    errno.EFBIG: "the file is larger than the file size limit (ulimit -f): raise the limit",
    errno.EACCES: "we may not write there: change its owner, or choose another store",
    errno.EPERM: "we may not write there: change its owner, or choose another store",
    errno.EROFS: "the file system is read-only: choose another store",
}


class StoreError(SweepError):
    """The store can't be written; what was there before is still whole."""

    def __init__(self, path: Path, cause: OSError) -> None:
        self.path = path
        self.errno = cause.errno
        why = cause.strerror or str(cause)
        way_out = _WAYS_OUT.get(cause.errno or 0, "check the disk, then resume the sweep")
        super().__init__(f"{path}: not written ({why}); {way_out}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Hand out a path beside `path` to write to; it takes the place of `path` when all is written.

    The content is on the disk before the name is: a power cut leaves the old file or the new one.
    Raises `StoreError` when the system refuses, and leaves the old file as it was.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise StoreError(path, error) from error
    finally:
        _discard(partial)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once, in place of the one that may be there."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(partial: Path) -> None:
    """Drop what a failed write left; a failure to do so must not hide the reason."""
    try:
        partial.unlink(missing_ok=True)
    except OSError:
        return
