"""Read a socket whose packets the kernel stamps as they arrive."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .plain import COMMA, EVENT_END, EVENT_LINES, NEWLINE
from .stream import EOF, RESET, Connection, now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from .loop import Loop

    Reader = Callable[[Connection], None]

READ_BYTES = 1 << 15
_ANCILLARY_BYTES = 64
_TIMESPEC = struct.Struct("@ll").unpack_from


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
        if ancillary:
            seconds, nanoseconds = _TIMESPEC(ancillary[0][2])
            arrived = seconds * 1_000_000_000 + nanoseconds + loop.offset
        else:
            arrived = now_ns()
            loop.unstamped += 1
        loop.last_arrival = arrived
        if stream.brief and plain is not None:
            if stream.rest:
                piece, stream.rest = stream.rest + piece, b""
            at = piece.rfind(plain.key)
            if at > 0 and plain.sign in piece and piece.endswith(EVENT_END):
                at += len(plain.key)
                if piece.count(NEWLINE) == EVENT_LINES:
                    try:  # as `Plain.count` does, for the usual single event
                        count = int(piece[at : piece.find(COMMA, at)])
                    except ValueError:
                        pass
                    else:
                        append = stream.counted.append
                        append(arrived)
                        append(count)
                        return
        take(loop, connection, piece, arrived)

    return read


def take(loop: Loop, connection: Connection, piece: bytes, arrived: int) -> None:
    """Keep what came, in brief if it may be, and find out whether the answer is complete."""
    plain, stream = loop.plain, connection.stream
    assert stream is not None
    if plain is not None:
        if stream.brief:
            piece = plain.count(stream, piece, arrived)
            if not piece:
                return
        stream.brief = plain.speaks(piece)
    stream.keep(piece, arrived)
    if stream.ended():
        loop.complete(connection, stream, arrived)
