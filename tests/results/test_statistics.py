"""Each formula against numbers worked by hand, from n = 0 on."""

import math

import pytest

from tasks.results.statistics import Interval, estimate, ratio


def test_no_value_has_no_mean():
    assert estimate([]) is None
    assert estimate([math.nan, math.inf]) is None


def test_one_value_has_no_interval():
    found = estimate([92.6])
    assert found is not None
    assert (found.mean, found.n, found.interval) == (92.6, 1, None)


def test_two_values_by_hand():
    # mean 11, s = √2, s/√2 = 1, t(0.975; 1) = 12.7062
    found = estimate([10, 12])
    assert found is not None
    assert found.mean == 11
    assert found.interval is not None
    assert found.interval.low == pytest.approx(11 - 12.7062, abs=1e-4)
    assert found.interval.high == pytest.approx(11 + 12.7062, abs=1e-4)


def test_four_values_by_hand():
    # mean 5, squares 9+1+1+9 = 20, s² = 20/3, s/√4 = 1.29099, t(0.975; 3) = 3.18245
    found = estimate([2, 4, 6, 8])
    assert found is not None
    assert found.interval is not None
    assert found.interval.high - 5 == pytest.approx(3.18245 * 1.29099, abs=1e-4)


def test_a_nan_is_not_a_measurement():
    assert estimate([10, math.nan, 12]) == estimate([10, 12])


def test_equal_values_have_an_interval_of_width_0():
    found = estimate([5.0, 5.0, 5.0])
    assert found is not None
    assert found.interval == Interval(5.0, 5.0)


@pytest.mark.parametrize("sides", [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [2.0, -1.0])])
def test_a_ratio_needs_positive_values_on_both_sides(sides: tuple[list[float], list[float]]):
    assert ratio(*sides) is None


@pytest.mark.parametrize(
    "sides", [([96.1], [92.6]), ([96.1, 96.3], [92.6]), ([96.1], [92.6, 92.4])]
)
def test_a_single_run_on_a_side_gives_a_ratio_without_interval(
    sides: tuple[list[float], list[float]],
):
    found = ratio(*sides)
    assert found is not None
    assert found.interval is None
    assert found.value == pytest.approx(1.038, abs=0.003)


def test_a_ratio_of_two_and_two_by_hand():
    # ln: a = (1, 3), b = (0, 2): means 2 and 1, both variances 2, so se = √(2/2 + 2/2) = 1.41421
    # Welch: equal variances and sizes give 2 degrees of freedom; t(0.975; 2) = 4.30265
    found = ratio([math.e, math.e**3], [1, math.e**2])
    assert found is not None
    assert found.value == pytest.approx(math.e)
    assert found.interval is not None
    assert math.log(found.interval.low) == pytest.approx(1 - 4.30265 * 1.41421, abs=1e-4)
    assert math.log(found.interval.high) == pytest.approx(1 + 4.30265 * 1.41421, abs=1e-4)


def test_unequal_spreads_follow_satterthwaite():
    # ln a = (0, 0, 0): variance 0; ln b = (0, 2, 4): variance 4, so all freedom is b's: 2
    found = ratio([1, 1, 1], [1, math.e**2, math.e**4])
    assert found is not None
    assert found.interval is not None
    assert math.log(found.interval.high) == pytest.approx(-2 + 4.30265 * math.sqrt(4 / 3), abs=1e-4)


def test_swapping_the_sides_gives_the_reciprocal():
    there, back = ratio([10, 11, 12], [7, 9]), ratio([7, 9], [10, 11, 12])
    assert there is not None
    assert back is not None
    assert there.interval is not None
    assert back.interval is not None
    assert there.value * back.value == pytest.approx(1)
    assert there.interval.low * back.interval.high == pytest.approx(1)


def test_identical_runs_give_a_sharp_ratio():
    found = ratio([4, 4], [2, 2])
    assert found is not None
    assert found.interval is not None
    assert (found.value, found.interval.low, found.interval.high) == pytest.approx((2, 2, 2))


def test_a_higher_confidence_widens_the_interval():
    wide, narrow = ratio([10, 11], [7, 9], 0.99), ratio([10, 11], [7, 9], 0.9)
    assert wide is not None
    assert narrow is not None
    assert wide.interval is not None
    assert narrow.interval is not None
    assert wide.interval.low < narrow.interval.low
