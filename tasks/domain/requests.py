"""The requests of one run, in columns: once, since there may be millions of them."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1
"""A count that the server didn't give."""

_NS_PER_S = 1e9
_OF_CHUNKS = ("arrival_ns", "cumulative_tokens")

Times = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a run, in ns of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.start_ns) / _NS_PER_S


@dataclass(frozen=True)
class Requests:
    """Requests of one run in columns; times are ns.

    `first_text_ns` is 0 where no text came. The counts are the server's, `UNKNOWN` where it gave
    none. `lengths` says how many chunks with tokens each request had: `arrival_ns` and
    `cumulative_tokens` hold them one request after the other.
    """

    intended_ns: Times
    sent_ns: Times
    end_ns: Times
    first_text_ns: Times
    prompt_tokens: Times
    completion_tokens: Times
    cached_tokens: Times
    verify_steps: Times
    finished: Flags
    lengths: Times
    arrival_ns: Times
    cumulative_tokens: Times

    @cached_property
    def bounds(self) -> Times:
        """Where the chunks of each request begin, and where those of the last one end."""
        return np.concatenate(([0], np.cumsum(self.lengths)))

    @cached_property
    def first_ns(self) -> Times:
        """When each request's first chunk with tokens arrived; 0 where none did."""
        return self._at(self.bounds[:-1], self.arrival_ns)

    @cached_property
    def output_tokens(self) -> Times:
        """Generated tokens: the server's count, or what its chunks add up to."""
        if not (self.completion_tokens == UNKNOWN).any():
            return self.completion_tokens
        counted = self._at(self.bounds[1:] - 1, self.cumulative_tokens)
        return np.where(self.completion_tokens == UNKNOWN, counted, self.completion_tokens)

    @cached_property
    def e2e_ns(self) -> Times:
        """From the intended send to the end."""
        return self.end_ns - self.intended_ns

    def part(self, first: int, end: int) -> "Requests":
        """Take the requests from one up to another, that left out, without copying any."""
        of_requests = slice(first, end)
        of_chunks = slice(int(self.bounds[first]), int(self.bounds[end]))
        names = (field.name for field in fields(self))
        return Requests(
            *(getattr(self, n)[of_chunks if n in _OF_CHUNKS else of_requests] for n in names)
        )

    def blocks(self, chunks: int) -> Iterator["Requests"]:
        """Cut them into parts of about so many chunks, no request in two."""
        count = len(self.lengths)
        step = max(1, count * chunks // max(1, len(self.arrival_ns)))
        for first in range(0, count, step):
            yield self.part(first, min(first + step, count))

    def _at(self, places: Times, chunks: Times) -> Times:
        """Look a chunk of each request up; 0 where it has none."""
        found = np.zeros(len(self.lengths), np.int64)
        having = self.lengths > 0
        found[having] = chunks[places[having]]
        return found
