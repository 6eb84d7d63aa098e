"""HTTP/1.1 on bytes: parse requests, build responses. No sockets here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    422: "Unprocessable Entity",
    503: "Service Unavailable",
}
HEAD_LIMIT = 65_536
LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BadRequest(ValueError):
    """The peer doesn't speak HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A whole request; header names are lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request whose body may still be under way."""

    method: str
    target: str
    headers: Mapping[str, str]
    size: int

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"


def parse_head(buffer: bytes | bytearray) -> Head | None:
    """Return the head at the beginning of a buffer, or None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > HEAD_LIMIT:
            raise BadRequest("head too long")
        return None
    first, *lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest("no request line")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Head(parts[0], parts[1], headers, end + 4)


def parse_request(buffer: bytes | bytearray, head: Head) -> tuple[HttpRequest, int] | None:
    """Return the request at the beginning of a buffer and its size, or None while incomplete."""
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        found = _chunked_body(buffer, head.size)
    else:
        try:
            end = head.size + int(head.headers.get("content-length", 0))
        except ValueError as error:
            raise BadRequest("content-length is no number") from error
        found = (bytes(buffer[head.size : end]), end) if len(buffer) >= end else None
    if found is None:
        return None
    body, end = found
    return HttpRequest(head.method, head.target, head.headers, body), end


def _chunked_body(buffer: bytes | bytearray, at: int) -> tuple[bytes, int] | None:
    pieces: list[bytes] = []
    while (line_end := buffer.find(b"\r\n", at)) >= 0:
        try:
            size = int(bytes(buffer[at:line_end]).split(b";")[0], 16)
        except ValueError as error:
            raise BadRequest("chunk size is no number") from error
        at = line_end + 2 + size + 2
        if len(buffer) < at:
            return None
        if size == 0:
            return b"".join(pieces), at
        pieces.append(bytes(buffer[line_end + 2 : at - 2]))
    return None


def response(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    """Return a whole response of known length."""
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\ndate: {formatdate(usegmt=True)}\r\n"
        f"server: uvicorn\r\ncontent-length: {len(body)}\r\ncontent-type: {content_type}\r\n\r\n"
    )
    return head.encode() + body


def json_response(value: object, status: int = 200) -> bytes:
    return response(status, json.dumps(value, separators=(",", ":")).encode())


def stream_head() -> bytes:
    """Return the head of a server-sent event stream; chunks follow."""
    return (
        f"HTTP/1.1 200 OK\r\ndate: {formatdate(usegmt=True)}\r\nserver: uvicorn\r\n"
        "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    ).encode()


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)
