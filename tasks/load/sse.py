"""Server-sent events, each with the time at which its last byte arrived."""

import re
from collections.abc import Iterator, Sequence

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r)(?:\r\n|\n|\r)")


def timed_events(
    body: bytes, marks: Sequence[int], times: Sequence[int]
) -> Iterator[tuple[bytes, int]]:
    """Yield each event's data and its arrival; what follows the last blank line is no event.

    `marks[i]` is the length of the body at `times[i]`. Comments and events without data are
    left out.
    """
    read = 0
    for start, stop, end in _blocks(body):
        while marks[read] < end:
            read += 1
        data = body[start + 6 : stop]
        if not body.startswith(b"data: ", start) or b"\n" in data or b"\r" in data:
            data = _data(body[start:stop])
        if data:
            yield data, times[read]


def _blocks(body: bytes) -> Iterator[tuple[int, int, int]]:
    """Find the events: begin, end, and end with its blank line."""
    start = 0
    if b"\r" in body:
        for match in _BLANK_LINE.finditer(body):
            yield start, match.start(), match.end()
            start = match.end()
        return
    find = body.find
    while (stop := find(b"\n\n", start)) >= 0:
        yield start, stop, stop + 2
        start = stop + 2


def _data(block: bytes) -> bytes:
    """Join the data lines of an event that isn't the usual single one."""
    lines = [line for line in block.splitlines() if line.startswith(b"data:")]
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)
