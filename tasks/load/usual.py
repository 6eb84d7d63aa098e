"""A short cut through the usual answer of /generate, three times as fast as taking it apart.

Every event of such an answer repeats all the text before it, and a run has millions of events. As
their count stands behind a key that can't occur within a text (there the quotes are escaped), the
counts are found by that key alone, in the raw bytes, and only the first and the last event are
parsed. Whatever is not as expected gives None, and the caller takes the answer apart.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import orjson

from tasks.load.tokens import Trace, note_meta

_KEY = b'"completion_tokens":'
_DONE = b"data: [DONE]\n\n"
_DATA = b"data: "


def read_usual(raw: bytes, sizes: Sequence[int], times: Sequence[int]) -> Trace | None:
    """Trace a whole answer: each event holds the key once, each count ends at a comma.

    `raw` is the response as it came, with the framing of its chunks, which holds no blank line.
    """
    parts = raw.split(_KEY)
    done = raw.rfind(_DONE)
    if done < 0 or len(parts) < 2 or raw.count(b"\n\n") != len(parts):
        return None
    try:
        ends, trace = _count(parts, sizes, times)
        _note_first_text(raw, ends, sizes, times, trace)
        last = _event(raw, ends[-2] if len(ends) > 1 else 0, ends[-1])
        note_meta(last.get("meta_info") or {}, trace)
    except (ValueError, IndexError):  # a number, an event or its data cut in two by a chunk
        return None
    trace.done_ns = times[bisect_left(sizes, done + len(_DONE))]
    return trace


def _count(
    parts: Sequence[bytes], sizes: Sequence[int], times: Sequence[int]
) -> tuple[list[int], Trace]:
    """Read the count at the beginning of each part but the first, and where its event ends.

    The hottest loop of the parsing, hence its local names.
    """
    ends: list[int] = []
    arrivals: list[int] = []
    counts: list[int] = []
    at, read, total = len(parts[0]), 0, 0
    for part in parts[1:]:
        at += len(_KEY)
        count = int(part[: part.index(b",")])
        end = at + part.index(b"\n\n") + 2
        ends.append(end)
        while sizes[read] < end:
            read += 1
        if count > total:
            arrivals.append(times[read])
            counts.append(count)
            total = count
        at += len(part)
    return ends, Trace(arrivals, counts)


def _note_first_text(
    raw: bytes, ends: Sequence[int], sizes: Sequence[int], times: Sequence[int], trace: Trace
) -> None:
    """Parse the events from the first on, until one has a text."""
    before = 0
    for end in ends:
        event = _event(raw, before, end)
        if event["text"]:
            trace.note_text(event["text"], times[bisect_left(sizes, end)])
            return
        before = end


def _event(raw: bytes, before: int, end: int) -> dict[str, Any]:
    """Parse the event that ends at `end`, the one before it having ended at `before`."""
    event = orjson.loads(raw[raw.index(_DATA, before) + len(_DATA) : end - 2])
    if not isinstance(event, dict) or not isinstance(event.get("text"), str):
        raise ValueError("not an event of /generate")
    return event
