"""Read what the capture program wrote."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.load.capture.stream import HEADER


@dataclass(frozen=True, slots=True)
class Captured:
    """One request and the bytes that came back; times are ns of CLOCK_MONOTONIC.

    `times[i]` is the arrival of the read after which `sizes[i]` bytes had come. `ending` is one
    of the constants of `tasks.load.capture.stream`. `sent_ns` is 0 if nothing was ever sent.
    """

    index: int
    due_ns: int
    sent_ns: int
    closed_ns: int
    ending: int
    retries: int
    times: array[int]
    sizes: array[int]
    error: str
    raw: bytes


def read_captured(path: Path) -> Iterator[Captured]:
    """Yield the streams of one file, in the order in which they ended."""
    with path.open("rb") as file:
        while header := file.read(HEADER.size):
            index, due, sent, closed, reads, size, error_size, ending, retries, _ = HEADER.unpack(
                header
            )
            times, sizes = array("q"), array("q")
            times.frombytes(file.read(8 * reads))
            sizes.frombytes(file.read(8 * reads))
            error = file.read(error_size).decode()
            raw = file.read(size)
            yield Captured(index, due, sent, closed, ending, retries, times, sizes, error, raw)
