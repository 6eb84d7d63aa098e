"""What the server knows: when it read each request and wrote each event."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_ENTRY = struct.Struct("9Q")
FINE, ERROR_500, CUT, STALLED = range(4)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request; the times are ns of CLOCK_MONOTONIC."""

    number: int
    fate: int
    asked: int
    tokens: int
    read_ns: int
    written_ns: array[int]


@dataclass(frozen=True, slots=True)
class Truth:
    """Times in ms of the requests that were answered in full, and how many met another fate."""

    requests: int
    tokens: int
    failed: int
    arrivals_ns: NDArray[np.int64]
    ttft_ms: NDArray[np.float64]
    itl_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]


def read_log(path: Path) -> Iterator[Entry]:
    """Read the server's log, request by request in the order of their ends."""
    raw, at = path.read_bytes(), 0
    while at < len(raw):
        number, _, fate, asked, tokens, events, _, read, _ = _ENTRY.unpack_from(raw, at)
        at += _ENTRY.size
        written = array("Q", raw[at : at + 8 * events])
        at += 8 * events
        yield Entry(number, fate, asked, tokens, read, written)


def truth_of(path: Path, spared: int) -> Truth:
    """Sum up a log; the first `spared` requests were the client's warm-up."""
    entries = [entry for entry in read_log(path) if entry.number >= spared]
    whole = [entry for entry in entries if entry.tokens == entry.asked]
    writes = [np.array(entry.written_ns, np.int64) for entry in whole]
    return Truth(
        requests=len(entries),
        tokens=sum(entry.tokens for entry in whole),
        failed=len(entries) - len(whole),
        arrivals_ns=np.sort(np.array([entry.read_ns for entry in entries], np.int64)),
        ttft_ms=np.array([w[0] - e.read_ns for w, e in zip(writes, whole, strict=True)]) / 1e6,
        itl_ms=np.concatenate([np.diff(w) for w in writes]) / 1e6,
        tpot_ms=np.array(
            [(w[-1] - w[0]) / max(1, e.tokens - 1) for w, e in zip(writes, whole, strict=True)]
        )
        / 1e6,
    )
