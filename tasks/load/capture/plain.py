"""What is the same in event after event need not be kept, but for the count of tokens.

A server repeats in every event what the one before said, with all the text so far; a long answer
would be kept many times over, and parsed as often.
"""

from __future__ import annotations

from .stream import Stream

EVENT_END = b"\n\n\r\n"
"""How an event ends that ends its chunk as well."""

FRAME, FRAME_BYTES = b"\r\ndata: ", 16
"""What follows the length of a chunk that is an event, and by where at the latest."""

NEWLINE, COMMA, DIGITS = b"\n", b",", 12
HEAD_BYTES = 12
"""By where the line with a chunk's length has ended; the first newline after it ends an event."""

_LAST = b"0\r\n\r\n"
_MOST_REST = 1 << 22
_MOST_TAILS = 64


class Tails(dict):  # type: ignore[type-arg]  # Python 3.8 has no dict[int, bytes]
    """How an event ends that tells a count: from the count's key on, made as they are needed."""

    __slots__ = ("after", "key")

    def __init__(self, key: bytes, after: bytes) -> None:
        super().__init__()
        self.key = key
        self.after = after

    def __missing__(self, count: int) -> bytes:
        tail = self[count] = b"%b%d%b" % (self.key, count, self.after)
        return tail


class Plain:
    """What a plain event looks like: of it only the count of tokens so far is kept.

    An event is plain that fills one chunk, holds `sign` (it isn't the last) and tells its count
    behind `key`. The events before the first with a text (which holds none of `silent`), and that
    one itself, are kept whole. Where a server tells no counts (`uncounted` allows for it) an event
    with a text is kept as the count 0: one more. How the server spaces its JSON is learnt from
    the first event with a text, and from each event how the next one will end.
    """

    __slots__ = ("counted", "key", "sign", "silent", "spelt", "tails", "uncounted")

    def __init__(self, key: str, sign: str, silent: list[str], uncounted: bool) -> None:
        self.spelt = [
            [text.replace(":", colon).encode() for text in (key, sign, *silent)]
            for colon in (": ", ":")  # the wider first, which holds the other
        ]
        self.key, self.sign, *self.silent = self.spelt[0]
        self.uncounted = uncounted
        self.counted = True
        self.tails: dict[tuple[bytes, bytes], Tails] = {}

    def speaks(self, piece: bytes) -> bool:
        """Whether a piece that is kept whole ends with an event, whole, that has count and text."""
        begin = piece.rfind(FRAME)
        event = piece[begin:]
        if begin < 0 or not event.endswith(EVENT_END):
            return False
        for key, sign, *silent in self.spelt:
            counted = key in event
            if sign in event and (counted or self.uncounted):
                self.key, self.sign, self.silent = key, sign, silent
                self.counted = counted
                return not any(mark in event for mark in silent)
        return False

    def count(self, stream: Stream, piece: bytes, arrived: int, stamp: bytes) -> bytes:
        """Keep the events of one read as counts, if all are plain; return what must be kept whole.

        `piece` begins with a chunk. What follows its last whole event waits in the stream's `rest`.
        """
        end = piece.rfind(EVENT_END) + len(EVENT_END)
        if end >= len(EVENT_END):
            counts = self._counts(piece[:end])
            if counts is None:
                return piece
            for count in counts:
                stream.note(stamp, count)
            self._foresee(stream, piece[:end])
            piece = piece[end:]
        if piece.endswith(_LAST) or len(piece) > _MOST_REST:
            return piece
        stream.rest, stream.rest_time = piece, arrived
        return b""

    def _foresee(self, stream: Stream, piece: bytes) -> None:
        """Learn from the last event of a piece how the next one will end."""
        stream.tails = None
        at, sign = piece.rfind(self.key), piece.rfind(self.sign)
        if not stream.count or not 0 <= sign < at:
            return
        after = piece[at + len(self.key) + len(b"%d" % stream.count) :]
        if len(self.tails) > _MOST_TAILS:
            self.tails.clear()
        which = self.key, after
        tails = self.tails.get(which)
        if tails is None:
            tails = self.tails[which] = Tails(*which)
        stream.tails, stream.gap = tails, at - sign

    def _counts(self, piece: bytes) -> list[int] | None:
        """The counts of some whole chunks; None unless each is a plain event."""
        found = []
        for event in piece.split(EVENT_END)[:-1]:
            start = event.find(FRAME, 0, FRAME_BYTES)
            if start <= 0 or self.sign not in event or event.find(NEWLINE, start + 2) >= 0:
                return None
            count = self._count(event)
            if count is None:
                return None
            found.append(count)
        return found

    def _count(self, event: bytes) -> int | None:
        """The count in an event that is otherwise plain."""
        at = event.rfind(self.key)
        if self.counted:
            at += len(self.key)
            count = event[at : at + DIGITS].partition(COMMA)[0]
            return int(count) if at >= len(self.key) and count.isdigit() else None
        return 0 if at < 0 and not any(mark in event for mark in self.silent) else None
