"""Level shifts: the statistic by hand, and every kind of night that is no loss."""

import math

import numpy as np
import pytest
from scipy.special import stdtr

from tasks.results.shifts import (
    CLIP,
    FALSE_ALARMS,
    HORIZON,
    LOOKS,
    Line,
    find_shifts,
    limit_probability,
    line_values,
    without_outliers,
)

ONE = [Line("one", (0,))]
QUIET = [0.01, -0.01, 0.0, 0.02, -0.02, 0.01, -0.01, 0.0, 0.02, -0.02, 0.01, -0.01]
"""Mean 0, variance 0.0022/11 = 0.0002, so s = 1.414 %."""


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def noisy(nights: int, cells: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.015, (nights, cells))


def board(cells: int) -> list[Line]:
    every = tuple(range(cells))
    return [Line("board", every, 0), *(Line(str(n), (n,), 1) for n in every)]


def test_a_shift_by_hand():
    found = find_shifts(column(*QUIET, -0.10, -0.10), ONE)

    (shift,) = found.shifts
    assert (shift.began, shift.found, shift.reference_nights, shift.alarm) == (12, 13, 12, True)
    assert shift.change == pytest.approx(-0.10)
    error = math.sqrt(0.0002 * (1 / 12 + 1 / 2))  # 1.0801 %
    assert shift.high == pytest.approx(-0.10 + 2.20099 * error, abs=1e-6)  # t(0.975; 11)
    assert shift.low == pytest.approx(-0.10 - 2.20099 * error, abs=1e-6)


def test_the_limit_is_what_it_is_said_to_be():
    (p,) = limit_probability(ONE)
    assert p == FALSE_ALARMS / (HORIZON * LOOKS)
    assert limit_probability(board(4)) == pytest.approx([p / 2] + [p / 8] * 4)
    # Two nights just short of the limit, and just beyond it, for t with 11 degrees of freedom.
    error = math.sqrt(0.0002 * (1 / 12 + 1 / 2))
    t = next(t for t in np.arange(3, 9, 1e-3) if stdtr(11, -t) <= p)
    assert not find_shifts(column(*QUIET, *[-(t - 0.01) * error] * 2), ONE).shifts
    assert find_shifts(column(*QUIET, *[-(t + 0.01) * error] * 2), ONE).shifts


@pytest.mark.parametrize("nights", [0, 1, 2, 3, 6])
def test_with_few_nights_nothing_is_said(nights: int):
    found = find_shifts(column(*([0.0, -0.5] * 3)[:nights]), ONE)
    assert found.shifts == ()
    (band,) = found.bands
    assert band.nights == max(0, nights - 1)
    assert math.isinf(band.low) == (nights < 4)


def test_the_band_by_hand():
    (band,) = find_shifts(column(*QUIET, -0.03), ONE).bands
    assert (band.nights, band.center, band.tonight) == (12, pytest.approx(0), -0.03)
    half = 2.20099 * math.sqrt(0.0002 * (1 + 1 / 12))  # 3.24 %
    assert (band.low, band.high) == (pytest.approx(-half, abs=1e-6), pytest.approx(half, abs=1e-6))
    assert not band.far


def test_one_bad_night_is_far_off_but_no_shift():
    for deep in (-0.12, -3.0):
        found = find_shifts(column(*QUIET, deep), ONE)
        assert found.shifts == ()
        assert found.bands[0].far
        assert not find_shifts(column(*QUIET, deep, 0.01, 0.0, deep, 0.0), ONE).shifts


def test_bad_nights_around_a_better_one_are_no_level():
    assert not find_shifts(column(*QUIET, -0.15, -0.045, -0.15), ONE).shifts
    assert find_shifts(column(*QUIET, -0.12, -0.11, -0.13), ONE).shifts


def test_a_bad_night_does_not_hide_the_loss_that_follows():
    found = find_shifts(column(*QUIET, -0.5, *QUIET, -0.10, -0.11), ONE)
    assert [(s.began, s.alarm) for s in found.shifts] == [(25, True)]


def test_nights_without_a_value_are_passed_over():
    gap = [math.nan] * 20
    found = find_shifts(column(*QUIET, *gap, -0.10, math.nan, -0.10), ONE)
    assert [(s.began, s.found) for s in found.shifts] == [(32, 34)]
    assert find_shifts(column(*QUIET, *gap, *QUIET), ONE).shifts == ()
    assert find_shifts(column(*gap), ONE).shifts == ()


def test_a_gain_is_no_alarm_and_its_loss_is_one():
    found = find_shifts(column(*QUIET, *(0.1 + q for q in QUIET), -0.005, 0.005), ONE)
    assert [(s.began, s.change > 0, s.alarm) for s in found.shifts] == [
        (12, True, False),
        (24, False, True),
    ]


def test_a_loss_is_told_once():
    found = find_shifts(column(*QUIET, *(q - 0.1 for q in QUIET * 3)), ONE)
    assert len(found.shifts) == 1


def test_small_losses_add_up():
    small = [q / 20 for q in QUIET]
    steps = [[q - 0.012 * n for q in small] for n in range(3)]
    found = find_shifts(np.concatenate([column(*step) for step in steps]), ONE)
    assert [(s.began, s.alarm) for s in found.shifts] == [(12, False), (24, True)]


def test_a_metric_without_noise_is_watched_too():
    assert find_shifts(column(*[0.0] * 10, -0.03, -0.03), ONE).shifts[0].alarm
    assert not find_shifts(column(*[0.0] * 10, -0.0005, -0.0005), ONE).shifts


def test_a_loss_of_the_whole_board_is_found_at_once_and_told_once():
    values = noisy(40, 12)
    values[30:] -= 0.03
    found = find_shifts(values, board(12))
    alarms = [s for s in found.shifts if s.alarm]
    assert [(s.line, s.began) for s in alarms] == [(0, 30)]
    assert alarms[0].found in (31, 32)
    assert alarms[0].change == pytest.approx(-0.03, abs=0.012)


def test_a_loss_of_one_cell_is_no_loss_of_the_board():
    values = noisy(40, 12)
    values[30:, 5] -= 0.2
    assert [s.line for s in find_shifts(values, board(12)).shifts] == [6]


def test_a_loss_must_show_where_it_counts():
    values = noisy(40, 12)
    values[30:, 3:] -= 0.05
    wide = Line("board", tuple(range(12)), proof=(0, 1, 2))
    (shift,) = find_shifts(values, [wide]).shifts
    assert not shift.alarm


def test_what_was_found_does_not_depend_on_later_nights():
    values = noisy(36, 6, seed=3)
    values[14:] -= 0.05
    values[26:] += 0.06
    whole = find_shifts(values, board(6)).shifts
    assert len(whole) >= 2
    for night in range(0, 36, 3):
        known = find_shifts(values[: night + 1], board(6)).shifts
        assert known == tuple(s for s in whole if s.found <= night)


def test_the_median_of_a_line_takes_what_a_night_has():
    values = np.full((9, 3), 5.0)
    values[3] = [5.2, 5.1, math.nan]
    values[4] = [4.0, math.nan, math.nan]
    line = line_values(values, [Line("", (0, 1, 2)), Line("", (0, 1, 2), mean=True)])
    assert line[3] == pytest.approx([0.15, 0.15])
    assert np.isnan(line[4]).all()
    assert line[5].tolist() == [0, 0]


def test_series_that_just_began_are_no_part_of_a_line():
    values = np.full((12, 2), 1.0)
    values[:8, 1] = math.nan
    values[8:, 1] = 3.0
    values[11] = [1.5, 9.0]
    assert line_values(values, [Line("", (0, 1))])[-1] == pytest.approx([0.5])


def test_outliers_are_left_out_of_the_reference():
    y = column(*QUIET, 0.4, *QUIET, 0.5)
    kept = without_outliers(y, np.isfinite(y))
    assert np.flatnonzero(~kept[:, 0]).tolist() == [12, 25]
    few = column(0.0, 0.01, -0.01, 9.0)
    assert without_outliers(few, np.isfinite(few)).all()


def test_false_alarms_are_as_rare_as_promised():
    """The benchmark has the figures; this holds what 20 histories can hold."""
    alarms = sum(bool(find_shifts(noisy(60, 12, seed), board(12)).shifts) for seed in range(20))
    assert alarms <= 1
    assert 0.5 < CLIP < 1
