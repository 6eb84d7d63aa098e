"""Values that stand for several, against the same values written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.distribution import Part, by_number, percentile, statistics, whole

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
def test_weights_are_repetitions(given_parts, percent):
    parts = [Part(np.sort(np.array(v, float)), weight) for v, weight in given_parts]
    written_out = np.concatenate([np.repeat(part.ordered, part.weight) for part in parts])
    assert percentile(parts, percent) == pytest.approx(np.percentile(written_out, percent))
    found = statistics(parts)
    assert found["mean"] == pytest.approx(written_out.mean())
    assert found["std"] == pytest.approx(written_out.std(), abs=1e-9)
    assert found["median"] == pytest.approx(np.median(written_out))


def test_by_hand():
    """1, 1, 1 and 5: mean 2, variance (3 * 1 + 9) / 4 = 3, p90 1 + 0.7 * 4."""
    found = statistics([Part(np.array([5.0])), Part(np.array([1.0]), 3)])
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


def test_values_are_put_together_by_number():
    values, numbers = np.array([5.0, 3.0, 9.0, 1.0, 2.0]), np.array([1, 2, 1, 0, 3])
    found = by_number(values, numbers, np.array([True, True, True, True, False]))
    assert {number: part.ordered.tolist() for number, part in found.items()} == {
        0: [1],
        1: [5, 9],
        2: [3],
    }
    assert by_number(np.array([]), np.array([], np.int64), np.array([], bool)) == {}
