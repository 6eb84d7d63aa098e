"""One request with what came back for it, the socket that serves it, and the clock of both."""

from __future__ import annotations

import socket
import struct
import time
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, BinaryIO

HEADER = struct.Struct("<9q3i")
"""index, due, sent, closed (ns), reads kept whole, numbers in `runs`, events kept as counts, raw
bytes, CLOCK_MONOTONIC minus CLOCK_REALTIME (ns); error bytes, ending, retries.

After it, signed 64-bit: the times of the reads that were kept whole and the raw bytes kept by
then; the runs of counts (see `Stream.runs`); of each event that was kept as a count its `STAMP`.
Then the error text in UTF-8 and the raw bytes of the response.
"""

STAMP = struct.Struct("@qq")
"""Seconds and ns of CLOCK_REALTIME, as the kernel hands them out on 64-bit machines."""

COMPLETE, EOF, RESET, REFUSED, TIMEOUT, ABANDONED = range(6)
"""How a stream ended: as framed, closed by the server, reset, no connection, too late, given up."""

NO_HEAD, CHUNKED, UNTIL_EOF = -1, -2, -3
"""A frame that isn't a length: head not seen, chunked, as long as the connection."""

ENOUGH = "enough"
"""The one reason to stop for which what is in flight may end."""

LAST_CHUNK = b"\r\n0\r\n\r\n"
now_ns = time.monotonic_ns


def clock_offset_ns(samples: int = 20) -> int:
    """CLOCK_MONOTONIC minus CLOCK_REALTIME in ns: the tightest of some samples."""
    best, offset = 1 << 62, 0
    for _ in range(samples):
        before = now_ns()
        real = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = now_ns()
        if after - before < best:
            best, offset = after - before, (before + after) // 2 - real
    return offset


class Stream:
    """One request and what came back for it; the times are ns of CLOCK_MONOTONIC.

    `brief` says that plain events may be kept as counts from now on: when they came is in `stamps`
    (the kernel's, undecoded), and before those in `packed`; their counts are in `runs`, a position
    and a count wherever the count isn't one more than that of the event before (0: one more, by a
    server that doesn't count). `count` is the last one, `tails` how the events to come are expected
    to end (see `plain.Tails`), `gap` how far before that their sign is. `rest` is the begin of an
    event whose end hasn't come, `rest_time` when it came. `next` is the turn that follows in the
    conversation, `said` are the answers to the turns before.
    """

    __slots__ = (
        "brief",
        "closed",
        "count",
        "deadline",
        "due",
        "ending",
        "error",
        "frame",
        "gap",
        "index",
        "keep_alive",
        "next",
        "packed",
        "pieces",
        "request",
        "rest",
        "rest_time",
        "retries",
        "runs",
        "said",
        "sent",
        "stamps",
        "tails",
        "times",
    )

    def __init__(self, index: int, due: int, request: bytes) -> None:
        self.index = index
        self.due = due
        self.request = request
        self.sent = self.closed = self.deadline = 0
        self.pieces: list[bytes] = []
        self.times = array("q")
        self.stamps: list[bytes] = []
        self.packed = bytearray()
        self.runs = array("q")
        self.tails: Mapping[int, bytes] | None = None
        self.count = self.gap = 0
        self.brief = False
        self.rest = b""
        self.rest_time = 0
        self.frame = NO_HEAD
        self.keep_alive = True
        self.ending = -1
        self.error = ""
        self.retries = 0
        self.next: Stream | None = None
        self.said: list[str] = []

    def keep(self, piece: bytes, arrived: int) -> None:
        """Keep what came in one read as it is."""
        self.pieces.append(piece)
        self.times.append(arrived)

    def note(self, stamp: bytes, count: int) -> None:
        """Keep an event as the count of tokens by then, or as 0 where nobody counts."""
        expected = self.count + 1 if self.count else 0
        if not self.runs or count != expected:
            self.runs.append(self.noted)
            self.runs.append(count)
        self.stamps.append(stamp)
        self.count = count

    @property
    def noted(self) -> int:
        """How many events were kept as counts."""
        return len(self.stamps) + len(self.packed) // STAMP.size

    def pack(self) -> None:
        """Keep the stamps so far in a quarter of the memory."""
        self.packed += b"".join(self.stamps)
        self.stamps.clear()

    def shift(self, step: int) -> None:
        """Have the stamps so far read with an offset `step` ns less: the clock was stepped."""
        self.pack()
        self.packed = bytearray().join(
            STAMP.pack(seconds, ns + step) for seconds, ns in STAMP.iter_unpack(self.packed)
        )

    def keep_rest(self) -> None:
        """Keep the begin of an event whose end will never come."""
        if self.rest:
            self.keep(self.rest, self.rest_time)
            self.rest = b""

    def ended(self) -> bool:
        """Whether the last piece completes the answer; it is asked after every piece."""
        if self.frame == NO_HEAD:
            self._learn_frame()
        if self.frame == CHUNKED:
            last = self.pieces[-1]
            if len(last) < len(LAST_CHUNK):  # the end may be spread over several pieces
                last = b"".join(self.pieces[-len(LAST_CHUNK) :])
            return last.endswith(LAST_CHUNK)
        return 0 <= self.frame <= sum(map(len, self.pieces))

    def _learn_frame(self) -> None:
        """Learn from the response's head how it ends, once all of the head is there."""
        head, body = self._head()
        if not head:
            return
        self.keep_alive = head.startswith(b"http/1.1") and b"\r\nconnection: close" not in head
        length = head.partition(b"\r\ncontent-length:")[2].split(b"\r\n", 1)[0].strip()
        if b"\r\ntransfer-encoding: chunked" in head:
            self.frame = CHUNKED
        else:
            self.frame = body + int(length) if length.isdigit() else UNTIL_EOF

    def _head(self) -> tuple[bytes, int]:
        """The head in lower case and where the body begins; empty until all of it is there."""
        raw = b"".join(self.pieces)
        start, end = 0, raw.find(b"\r\n\r\n")
        while end >= 0:
            head = raw[start : end + 2].lower()
            if not head.startswith(b"http/1.1 1"):  # 100 Continue: the real head follows
                return head, end + 4
            start, end = end + 4, raw.find(b"\r\n\r\n", end + 4)
        return b"", 0

    def write_to(self, out: BinaryIO, offset: int) -> int:
        """Append this stream to the job's file; return how many bytes the response has."""
        error = self.error.encode("utf-8", "replace")
        raw, sizes = b"".join(self.pieces), array("q", accumulate(map(len, self.pieces)))
        times = (self.index, self.due, self.sent, self.closed)
        lengths = (len(self.times), len(self.runs), self.noted, len(raw))
        out.write(HEADER.pack(*times, *lengths, offset, len(error), self.ending, self.retries))
        self.pack()
        for part in (self.times, sizes, self.runs, self.packed, error, raw):
            out.write(part)
        return len(raw)

    def release(self) -> None:
        """Let go of everything large."""
        self.pieces, self.request, self.packed = [], b"", bytearray()
        self.times = self.runs = array("q")

    def first_event(self) -> int:
        """When the first read came that holds more than the head; the end where none did."""
        size, head = 0, self._head()[1]
        for number, piece in enumerate(self.pieces):
            size += len(piece)
            if size > head:
                return self.times[number]
        return self.closed

    @property
    def reads(self) -> int:
        """How often something came."""
        return len(self.times) + self.noted


class Connection:
    """One socket, and the stream that it serves at the moment."""

    __slots__ = ("connected", "fd", "opened", "recvmsg", "sock", "stream", "unsent", "waited")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.recvmsg = sock.recvmsg
        self.stream: Stream | None = None
        self.opened = now_ns()
        self.connected = False
        self.waited = False
        self.unsent = memoryview(b"")


def resolve(host: str, port: int, patience_s: float = 5.0) -> tuple[tuple[int, Any] | None, str]:
    """Find the family and address of `host` where somebody listens, else its first; or why not."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return None, error.strerror or str(error)
    for family, kind, protocol, _, address in found if len(found) > 1 else ():
        with socket.socket(family, kind, protocol) as probe:
            probe.settimeout(patience_s)
            if probe.connect_ex(address) == 0:
                return (family, address), ""
    return (found[0][0], found[0][4]), ""
