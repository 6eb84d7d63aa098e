"""Give up what takes too long: answers, and connections that never come about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .stream import REFUSED, TIMEOUT

if TYPE_CHECKING:
    from .loop import Loop


def expire(loop: Loop, now: int) -> None:
    """Time out whoever is too late; all have the same time-out, so the first sent is first."""
    while loop.deadlines:
        stream = loop.deadlines[0]
        if stream.ending < 0 and stream.deadline > now:
            break
        loop.deadlines.popleft()
        if stream.ending < 0:
            connection = next(c for c in loop.connections.values() if c.stream is stream)
            loop.lose(connection, TIMEOUT, f"no end after {loop.timeout_ns / 1e9:g} s")


def expire_connecting(loop: Loop, now: int) -> None:
    """Give up connections that don't come about, and the load if none ever did."""
    for connection in list(loop.connections.values()):
        if not connection.connected and now - connection.opened > loop.connect_s * 1e9:
            if not loop.reached:
                loop.stopped = loop.stopped or "refused"
            loop.lose(connection, REFUSED, f"no connection within {loop.connect_s:g} s")
