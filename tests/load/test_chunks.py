"""What all chunks of a run say together, in whatever blocks they are read."""

import numpy as np
import pytest

from tasks.domain.chunks import Tally, chunks_of, tally
from tasks.domain.measurement import RequestOutcome
from tasks.domain.requests import Window
from tasks.load.metrics import in_columns
from tests.load.factory import MS, record

WINDOW = Window(900 * MS, 1_200 * MS)

RUN = in_columns(
    [
        record(0, sent_ms=0, chunks={800: 1, 900: 3, 950: 4}, end_ms=950),
        record(1, sent_ms=0),
        record(2, sent_ms=0, chunks={940: 1, 1_010: 3, 1_200: 3, 1_250: 7}, end_ms=1_250),
        record(3, sent_ms=600, chunks={1_000: 5, 1_100: 6}, outcome=RequestOutcome.CUT),
    ]
)
"""One gap each for a token more (50 ms), none (190 ms) and four (50 ms), two for two (100, 70)."""


def told(found: Tally) -> tuple[dict[int, list[int]], int, float]:
    in_ms = {n: [int(gap) // MS for gap in gaps] for n, gaps in found.gaps.items()}
    return in_ms, found.within, found.busiest


def test_by_hand():
    """Within are 950; 940, 1010 and the empty one at 1200; 1000 and 1100. The second second: 12."""
    gaps, within, busiest = told(tally(RUN, WINDOW))
    assert gaps == {1: [50], 2: [70, 100], 0: [190], 4: [50]}
    assert within == 1 + 1 + 2 + 5 + 1
    assert busiest == 2 + 4 + 6


@pytest.mark.parametrize("block", [1, 3, 5, 1_000])
def test_blocks_of_any_size_say_the_same(block: int):
    assert told(tally(RUN, WINDOW, block)) == told(tally(RUN, WINDOW))


def test_a_chunk_brings_what_it_adds_after_the_one_before():
    found = chunks_of(RUN)
    assert found.tokens.tolist() == [1, 2, 1, 1, 2, 0, 4, 5, 1]
    assert (found.gaps // MS).tolist() == [0, 100, 50, 0, 70, 190, 50, 0, 100]


def test_without_a_window_nothing_is_within():
    assert tally(RUN).within == 0


def test_of_nothing():
    assert tally(in_columns([]), WINDOW) == Tally({}, 0, 0.0)
    assert tally(in_columns([record()]), WINDOW) == Tally({}, 0, 0.0)


def test_a_count_that_falls_is_refused():
    with pytest.raises(ValueError, match="tokens of a request fall"):
        tally(in_columns([record(chunks={1: 5, 2: 3})]))


def test_parts_have_their_own_chunks():
    part = RUN.part(1, 3)
    assert part.lengths.tolist() == [0, 4]
    assert (part.arrival_ns // MS).tolist() == [940, 1_010, 1_200, 1_250]
    assert (part.first_ns // MS).tolist() == [0, 940]
    assert part.output_tokens.tolist() == [0, 7]
    assert not len(RUN.part(4, 4).arrival_ns)
    assert np.shares_memory(part.arrival_ns, RUN.arrival_ns)
