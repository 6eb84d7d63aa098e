"""What the chunks of a run say: what each one brought, how long it took, and all of them together.

A run may have millions of chunks. They are gone through in blocks that the processor's cache holds,
and nothing but the gaps between them is kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tasks.domain.distribution import Whole, in_order, narrow
from tasks.domain.requests import Flags, Requests, Times, Window

BLOCK = 1 << 16
"""Chunks whose columns the second level of a processor's cache holds; with fewer, two threads wait
for each other more often."""

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of many requests in columns, request after request.

    `tokens` are those that a chunk brought, `gaps` the ns since the same request's chunk before, 0
    for a request's first.
    `follows` marks the chunks whose gap counts for ITL: not a request's first, nor one whose
    predecessor came before any text. `finished` marks the chunks of finished requests, and is
    None where all are.
    """

    times: Times
    tokens: Times
    gaps: Times
    follows: Flags
    finished: Flags | None


@dataclass(frozen=True, slots=True)
class Tally:
    """What the chunks of a run say together.

    `gaps` are the ns that count for ITL, of finished requests, by how many tokens the chunk
    brought that ended them. Of all requests are the tokens that came within a window, and those of
    the busiest second, in seconds counted from the first intended send.
    """

    gaps: Mapping[int, Whole]
    within: int
    busiest: float


def chunks_of(requests: Requests) -> Chunks:
    """Work out what each chunk brought and how long it took."""
    times, counts, lengths = requests.arrival_ns, requests.cumulative_tokens, requests.lengths
    starts = requests.bounds[:-1][lengths > 0]
    gaps, tokens = _steps(times), _steps(counts)
    gaps[starts], tokens[starts] = 0, counts[starts]
    follows = np.ones(len(times), bool)
    if (requests.first_text_ns > requests.first_ns).any():
        follows[1:] = times[:-1] >= np.repeat(requests.first_text_ns, lengths)[1:]
    follows[starts] = False
    finished = requests.finished
    return Chunks(
        times, tokens, gaps, follows, None if finished.all() else np.repeat(finished, lengths)
    )


def tally(requests: Requests, window: Window | None = None, block: int = BLOCK) -> Tally:
    """Add up what the chunks say; raises `ValueError` where a request's count of tokens falls."""
    gaps: dict[int, list[Whole]] = {}
    within = 0
    by_second: list[tuple[Times, Times]] = []
    for part in requests.blocks(block):
        chunks = chunks_of(part)
        if not chunks.times.size:
            continue
        if chunks.tokens.min() < 0:
            raise ValueError("the cumulative tokens of a request fall")
        for number, found in _by_number(chunks):
            gaps.setdefault(number, []).append(found)
        within += _within(chunks, window)
        by_second.append(_by_second(chunks, int(requests.intended_ns.min())))
    return Tally({n: in_order(found) for n, found in gaps.items()}, within, _busiest(by_second))


def _steps(values: Times) -> Times:
    """Subtract from each value the one before; the first is left open."""
    steps = np.empty_like(values)
    np.subtract(values[1:], values[:-1], out=steps[1:])
    return steps


def _by_number(chunks: Chunks) -> Iterator[tuple[int, Whole]]:
    """Put the gaps together that chunks of the same number of tokens ended."""
    left = chunks.follows.copy() if chunks.finished is None else chunks.follows & chunks.finished
    gaps = narrow(chunks.gaps)
    while left.any():
        number = int(chunks.tokens[left.argmax()])
        chosen = chunks.tokens == number
        chosen &= left
        left ^= chosen
        yield number, gaps.compress(chosen)


def _within(chunks: Chunks, window: Window | None) -> int:
    """Sum the tokens that came within a window; most blocks lie in it as a whole."""
    if window is None:
        return 0
    if chunks.times.min() > window.start_ns and chunks.times.max() <= window.end_ns:
        return int(chunks.tokens.sum())
    inside = (chunks.times > window.start_ns) & (chunks.times <= window.end_ns)
    return int(chunks.tokens[inside].sum())


def _by_second(chunks: Chunks, start_ns: int) -> tuple[Times, Times]:
    """Sum what chunks of one second brought that stand together: the seconds, and their tokens."""
    seconds = chunks.times - start_ns
    seconds //= _NS_PER_S
    firsts = np.flatnonzero(np.concatenate(([True], seconds[1:] != seconds[:-1])))
    return np.maximum(seconds[firsts], 0), np.add.reduceat(chunks.tokens, firsts)


def _busiest(by_second: list[tuple[Times, Times]]) -> float:
    if not by_second:
        return 0.0
    seconds, tokens = (np.concatenate(column) for column in zip(*by_second, strict=True))
    return float(np.bincount(seconds, weights=tokens).max())
