"""Values that stand for several, against the same values written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.distribution import Part, in_order, narrow, percentile, statistics, whole

PARTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 40), min_size=1, max_size=6),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(PARTS, st.integers(0, 100))
def test_split_values_are_so_many_shares(given_parts, percent):
    parts = [Part(in_order([np.array(values)]), split) for values, split in given_parts]
    written_out = np.concatenate([np.repeat(p.ordered / p.split, p.split) for p in parts])
    assert percentile(parts, percent) == pytest.approx(np.percentile(written_out, percent))
    found = statistics(parts)
    assert found["mean"] == pytest.approx(written_out.mean())
    assert found["std"] == pytest.approx(written_out.std(), abs=1e-9)
    assert found["median"] == pytest.approx(np.median(written_out))


def test_by_hand():
    """5, and 3 in three shares of 1: mean 2, variance (3 * 1 + 9) / 4 = 3, p90 1 + 0.7 * 4."""
    found = statistics([Part(np.array([5])), Part(np.array([3]), 3)])
    assert found["mean"] == 2
    assert found["std"] == pytest.approx(3**0.5)
    assert (found["median"], found["p90"]) == (1, pytest.approx(3.8))


def test_of_nothing_one_and_two():
    assert statistics(whole(np.array([], float))) == {}
    assert statistics([]) == {}
    one = statistics(whole(np.array([7])))
    assert one == {"mean": 7, "std": 0, "median": 7, "p90": 7, "p95": 7, "p99": 7}
    two = statistics(whole(np.array([8, 6])))
    assert (two["mean"], two["std"], two["median"]) == (7, 1, 7)
    assert two["p99"] == pytest.approx(7.98)


@pytest.mark.parametrize("other", [[7], [2**32 - 1], [2**32], [-1], [-(2**40), 2**40]])
def test_values_of_any_width_are_put_in_order(other):
    """Distributions of 32-bit and of wider values, of values below nothing, and of both."""
    pieces = [narrow(np.array([5, 3])), narrow(np.array(other))]
    assert in_order(pieces).tolist() == sorted([5, 3, *other])
    parts = [Part(in_order(pieces)), Part(np.array([6, 6, 9]), 3)]
    written_out = [5, 3, *other, *([2] * 6), *([3] * 3)]
    for percent in (0, 10, 50, 77, 100):
        assert percentile(parts, percent) == pytest.approx(np.percentile(written_out, percent))


def test_how_many_are_at_most_a_value_of_any_size():
    part = Part(in_order([narrow(np.array([5, 3, 5]))]))
    assert [part.up_to(value) for value in (-1, 2, 3, 4, 5, 2**33)] == [0, 0, 1, 1, 3, 3]


def test_only_what_is_wanted_is_worked_out():
    assert statistics(whole(np.array([8, 6])), ("mean", "median")) == {"mean": 7, "median": 7}
