"""How often the program looks at its sockets, and when it was kept from it.

Two chunks of a stream that arrive between two looks are one arrival, whoever stamps them: the
kernel has the time of the last alone. No read tells that from a server that sent both at once; but
who looks several times in the usual gap between two chunks merges none.
"""

from __future__ import annotations

from array import array
from itertools import chain

LOOKS_PER_GAP = 4
_LEAST_NS = 500_000
_FIRST_GAP_NS = 40_000_000  # until it is known
_MOST_BLINKS = 4000


class Sight:
    """What is known of one program's looks; all times are ns of CLOCK_MONOTONIC.

    `longest` is how long it may be between two looks, `blinks` when it was longer: from when, until
    when, in turn.
    """

    __slots__ = ("blinks", "gap", "in_flight", "least", "longest")

    def __init__(self) -> None:
        self.blinks = array("q")
        self.gap, self.least = _FIRST_GAP_NS, _LEAST_NS
        self.longest = self.gap // LOOKS_PER_GAP
        self.in_flight = 0

    def learn(self, in_flight: int, reads: int, within: int) -> None:
        """Learn the gap between two chunks from the reads of so many streams within a time.

        The least gap so far counts: streams that wait for their first chunk stretch the others.
        """
        most, self.in_flight = max(in_flight, self.in_flight), in_flight
        if reads:
            self.gap = min(self.gap, within * most // reads)
            self.longest = max(self.least, self.gap // LOOKS_PER_GAP)

    def blink(self, since: int, until: int) -> None:
        """Keep that nothing was looked at for so long.

        Of too many the shorter ones are forgotten, and not kept any more.
        """
        self.blinks.extend((since, until))
        while len(self.blinks) > 2 * _MOST_BLINKS:
            self.longest = self.least = 2 * self.longest
            pairs = zip(self.blinks[::2], self.blinks[1::2])  # noqa: B905 - for Python 3.8
            long = ((a, b) for a, b in pairs if b - a > self.longest)
            self.blinks = array("q", chain.from_iterable(long))
