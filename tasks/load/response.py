"""From raw bytes to an HTTP response whose body still knows when each part of it arrived."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import httptools


@dataclass(frozen=True, slots=True)
class Response:
    """A response as far as it came.

    `marks[i]` is how many bytes of the body had come after read i. `complete` says that it ended
    as its head announced; `fault` is the parser's complaint about bytes that aren't HTTP.
    """

    status: int | None
    content_type: str
    body: bytes
    marks: tuple[int, ...]
    complete: bool
    fault: str | None = None


class _Frame:
    """Hears from httptools all but the body; its method names are httptools'."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.head_seen = False
        self.complete = False

    def on_message_begin(self) -> None:
        self.headers.clear()  # after a 100 Continue the real head follows
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.head_seen = True

    def on_message_complete(self) -> None:
        self.complete = True


class _Parts(_Frame):
    """Hears the body as well."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append


def parse_response(raw: bytes, sizes: Sequence[int]) -> Response:
    """Parse head and framing; `sizes` are the bytes received after each read."""
    parts = _Parts()
    parser = httptools.HttpResponseParser(parts)
    view, start, fault = memoryview(raw), 0, None
    pieces, counts = parts.pieces, []
    try:
        for size in sizes:
            parser.feed_data(view[start:size])
            start = size
            counts.append(len(pieces))
    except httptools.HttpParserError as error:
        fault = str(error) or type(error).__name__
    lengths = [0, *accumulate(map(len, pieces))]
    marks = tuple(lengths[count] for count in counts)
    return _response(parser, parts, b"".join(pieces), marks, fault)


def parse_frame(raw: bytes) -> Response:
    """Parse head and framing alone; the body stays empty."""
    frame = _Frame()
    parser, fault = httptools.HttpResponseParser(frame), None
    try:
        parser.feed_data(raw)
    except httptools.HttpParserError as error:
        fault = str(error) or type(error).__name__
    return _response(parser, frame, b"", (), fault)


def _response(
    parser: httptools.HttpResponseParser,
    frame: _Frame,
    body: bytes,
    marks: tuple[int, ...],
    fault: str | None,
) -> Response:
    return Response(
        status=parser.get_status_code() if frame.head_seen else None,
        content_type=frame.headers.get(b"content-type", b"").decode("latin-1").lower(),
        body=body,
        marks=marks,
        complete=frame.complete or (frame.head_seen and not _framed(frame.headers)),
        fault=fault,
    )


def _framed(headers: dict[bytes, bytes]) -> bool:
    """Whether the head says how the body ends; without that it ends with the connection."""
    return b"content-length" in headers or b"chunked" in headers.get(b"transfer-encoding", b"")
