"""Each formula against numbers worked by hand, from n = 0 on."""

import math

import pytest

from tasks.results.statistics import (
    Interval,
    Noise,
    contrast,
    contrast_p_value,
    estimate,
    holm_confidences,
    noise_over_nights,
    p_value,
    pooled_noise,
    ratio,
)


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


LN_1_02 = math.log(1.02)


def test_pooled_noise_by_hand():
    # Two runs, ln 1.02 apart: squares (ln 1.02)²/2 with 1 degree of freedom; three alike: 0 with 2.
    found = pooled_noise([[100, 102], [7, 7, 7], [5], [], [1, -1]])
    assert found is not None
    assert found.freedom == 3
    assert found.spread == pytest.approx(math.sqrt(LN_1_02**2 / 2 / 3))


def test_too_little_tells_no_noise():
    assert pooled_noise([]) is None
    assert pooled_noise([[1], [2], [1, 1.1]]) is None
    assert noise_over_nights([[1, 2], [3]]) is None


def test_noise_over_nights_by_hand():
    # Differences +d, -d, +d with d = ln 1.02: spread² = d²/2; 2 * 3² / (3 * 4 - 4) = 2.25.
    found = noise_over_nights([[100, 102, 100, 102]])
    assert found is not None
    assert found.spread == pytest.approx(LN_1_02 / math.sqrt(2))
    assert found.freedom == 2.25


def test_a_shift_of_the_level_enters_the_noise_once():
    steady = [100, 102] * 10
    shifted = [*steady, *(value * 1.1 for value in steady)]
    noises = [noise_over_nights([series]) for series in (steady, shifted)]
    assert noises[1].spread < 2 * noises[0].spread


def test_single_runs_with_known_noise_by_hand():
    # ln 1.1 ± t(0.975; 10) * 0.02 * √(1/1 + 1/1) = 0.09531 ± 2.22814 * 0.028284
    found = ratio([110], [100], noise=Noise(0.02, 10))
    assert found is not None
    assert found.interval is not None
    assert math.log(found.interval.low) == pytest.approx(0.09531 - 0.06302, abs=1e-5)
    assert math.log(found.interval.high) == pytest.approx(0.09531 + 0.06302, abs=1e-5)


def test_sides_that_were_repeated_tell_their_own_noise():
    assert ratio([10, 11], [9, 8], noise=Noise(9.0, 99)) == ratio([10, 11], [9, 8])


def test_p_values_by_hand():
    # t = 2 with 1 degree of freedom (Cauchy): p = 1 - 2 atan(2) / π = 0.29517
    e = math.e
    found = p_value([e], [1], Noise(0.5 / math.sqrt(2), 1))
    assert found == pytest.approx(0.29517, abs=1e-5)
    assert p_value([2], [1]) is None
    assert p_value([], [1, 1]) is None
    assert p_value([1, 1], [1, 1]) == 1
    assert p_value([2, 2], [1, 1]) == 0


def test_the_p_value_and_the_interval_agree():
    x, y = [1.00, 1.03, 1.01], [1.04, 1.06, 1.05]
    p = p_value(x, y)
    assert p is not None
    found = ratio(x, y, confidence=1 - p)
    assert found is not None
    assert found.interval is not None
    assert found.interval.high == pytest.approx(1)


def test_holm_by_hand():
    # 0.01 ≤ 0.05/3, 0.02 ≤ 0.05/2, 0.04 ≤ 0.05/1: all significant.
    assert holm_confidences([0.04, 0.01, 0.02]) == pytest.approx([0.95, 1 - 0.05 / 3, 0.975])
    # 0.03 > 0.05/2 stops it, and 0.04 is judged at that level, though it is below 0.05.
    assert holm_confidences([0.03, 0.001, 0.04]) == pytest.approx([0.975, 1 - 0.05 / 3, 0.975])
    assert holm_confidences([None, 0.04]) == pytest.approx([0.95, 0.95])
    assert holm_confidences([]) == []


def test_a_contrast_by_hand():
    # two ratios, 12/10 and 15/10, averaged: √1.8; four terms of ±1/2, the first with two runs:
    # error 0.02 · √(1/4 · (1/2 + 1 + 1 + 1)) = 0.02 · 0.935414, t(0.975; 5) = 2.570582
    terms = [(0.5, [12.0, 12.0]), (-0.5, [10.0]), (0.5, [15.0]), (-0.5, [10.0])]
    found = contrast(terms, noise=Noise(0.02, 5))
    assert found is not None
    assert found.value == pytest.approx(math.sqrt(1.8))
    assert (found.n, found.n_reference) == (3, 2)
    assert found.interval is not None
    half = 2.570582 * 0.02 * 0.935414
    assert found.interval.low == pytest.approx(math.sqrt(1.8) * math.exp(-half), rel=1e-6)
    assert found.interval.high == pytest.approx(math.sqrt(1.8) * math.exp(half), rel=1e-6)


def test_a_contrast_of_two_sides_is_their_ratio():
    noise = Noise(0.03, 4)
    assert contrast([(1, [6.0]), (-1, [4.0])], noise=noise) == ratio([6.0], [4.0], noise=noise)
    chance = contrast_p_value([(1, [6.0]), (-1, [4.0])], noise)
    assert chance == pytest.approx(p_value([6.0], [4.0], noise))


def test_a_contrast_needs_terms_with_values_and_noise_for_an_interval():
    assert contrast([]) is None
    assert contrast([(1, [2.0]), (-1, [])]) is None
    assert contrast([(1, [2.0]), (-1, [0.0])]) is None
    found = contrast([(1, [2.0]), (-1, [1.0])])
    assert found is not None
    assert (found.value, found.interval) == (2.0, None)
    assert contrast_p_value([(1, [2.0]), (-1, [1.0])], None) is None
