"""Read a socket whose packets the kernel stamps as they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plain import HEAD_BYTES, NEWLINE, Plain
from .stream import EOF, RESET, STAMP, Connection, Stream, now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from .loop import Loop

    Reader = Callable[[Connection], None]

READ_BYTES = 1 << 15
_ANCILLARY_BYTES = 64
_END_BYTES = 4  # of `plain.EVENT_END`


def kernel_reader(loop: Loop) -> Reader:
    """The function that reads a socket once: it runs for every token, hence no lookups."""
    plain = loop.plain

    def read(connection: Connection) -> None:
        stream = connection.stream
        try:
            piece, ancillary, _, _ = connection.recvmsg(READ_BYTES, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            loop.lose(connection, RESET, error.strerror or str(error))
            return
        if not piece or stream is None:
            loop.lose(connection, EOF, "the server closed the connection")
            return
        stamp = ancillary[0][2] if ancillary else own_stamp(loop)
        loop.last_stamp = stamp
        if stream.rest:
            piece, stream.rest = stream.rest + piece, b""
        if stream.tails is not None and plain is not None:
            begin = foreseen(plain, stream, piece, stamp)
            if begin == len(piece):
                return
            piece = piece[begin:]
        take(loop, connection, piece, stamp)

    return read


def foreseen(plain: Plain, stream: Stream, piece: bytes, stamp: bytes) -> int:
    """Keep as counts the events that are as expected, each telling one token more; their bytes.

    An event is one that has no newline before the end of its tail, and the sign at its place.
    """
    tails, sign, gap = stream.tails, plain.sign, stream.gap
    assert tails is not None
    begin, count = 0, stream.count
    while True:
        tail = tails[count + 1]
        end = piece.find(NEWLINE, begin + HEAD_BYTES) + _END_BYTES
        start = end - len(tail)
        where = start - gap
        if where < begin or not piece.startswith(tail, start) or not piece.startswith(sign, where):
            break
        begin, count = end, count + 1
        if end == len(piece):
            break
    if begin:
        stream.stamps += (stamp,) * (count - stream.count)
        stream.count = count
    return begin


def own_stamp(loop: Loop) -> bytes:
    """What stands in where the kernel gives no stamp: the clock at the read."""
    loop.unstamped += 1
    return STAMP.pack(0, now_ns() - loop.offset)


def arrival(loop: Loop, stamp: bytes) -> int:
    """Decode a stamp: ns of CLOCK_MONOTONIC."""
    seconds, nanoseconds = STAMP.unpack(stamp)
    return int(seconds * 1_000_000_000 + nanoseconds + loop.offset)


def take(loop: Loop, connection: Connection, piece: bytes, stamp: bytes) -> None:
    """Keep what came, in brief if it may be, and find out whether the answer is complete."""
    plain, stream = loop.plain, connection.stream
    assert stream is not None
    arrived = arrival(loop, stamp)
    if plain is not None:
        if stream.brief:
            piece = plain.count(stream, piece, arrived, stamp)
            if not piece:
                return
        stream.brief = plain.speaks(piece)
        if not stream.brief:
            stream.tails = None
    stream.keep(piece, arrived)
    if stream.ended():
        loop.complete(connection, stream, arrived)
