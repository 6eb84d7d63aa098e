"""Drift and change of level within a run, against numbers worked by hand."""

import math

import numpy as np
import pytest

from tasks.domain.steadiness import Paced, change_point, steadiness
from tasks.load.metrics import compute_metrics
from tests.load.factory import record


def paced(values: list[float]) -> Paced:
    return Paced(np.arange(1.0, len(values) + 1), np.array(values, float))


@pytest.mark.parametrize("count", [0, 1, 2, 39])
def test_too_few_requests_tell_nothing(count: int):
    assert steadiness(paced([10.0] * count)) == {}


def test_a_steady_run_has_no_shift():
    assert steadiness(paced([10.0] * 40)) == {"tpot_drift": 0.0}


def test_a_step_is_found_where_it_is():
    """Of 40 requests the 17th is the first slower one: 8 blocks of 2 before it."""
    found = steadiness(paced([10.0] * 16 + [12.0] * 24))
    assert found["tpot_drift"] == pytest.approx(0.2)
    assert found["tpot_shift_ratio"] == pytest.approx(1.2)
    assert found["tpot_shift_at_s"] == 16.0


def test_drift_is_of_the_quarters():
    values = [8.0] * 10 + [5.0, 15.0] * 10 + [10.0] * 10
    assert steadiness(paced(values))["tpot_drift"] == pytest.approx(0.25)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0] * 20])
def test_no_change_point_of_too_little(values: list[float]):
    assert change_point(np.array(values)) is None


def test_pettitt_by_hand():
    """n = 10, step after 5: ranks 3 and 8, U(5) = 2*15 - 5*11 = -25, p = 2 exp(-3750/1100).

    That is 0.066; with 9 against 9 it is 2 exp(-6*81²/(5832+324)) = 0.0033.
    """
    assert 2 * math.exp(-6 * 25**2 / (10**3 + 10**2)) == pytest.approx(0.066, abs=5e-4)
    assert change_point(np.array([1.0] * 5 + [2.0] * 5)) is None
    assert change_point(np.array([1.0] * 9 + [2.0] * 9)) == 9
    assert change_point(np.array([2.0] * 9 + [1.0] * 9)) == 9


def test_noise_is_told_a_shift_in_less_than_1_of_50():
    draw = np.random.default_rng(1)
    told = sum(change_point(draw.normal(size=20)) is not None for _ in range(1000))
    assert told <= 20


def test_only_the_steady_window_counts():
    """Four slots, 3 ms a token; the last 60 requests take twice as long."""
    records = []
    for index in range(120):
        sent, pace = 100 + 10 * (index // 4), 3 if index < 60 else 6
        chunks = {sent + 2 + pace * i: i + 1 for i in range(3)}
        records.append(record(index, sent_ms=sent, chunks=chunks, end_ms=sent + 2 + pace * 2))
    metrics = compute_metrics(records, concurrency=4)
    assert metrics["tpot_shift_ratio"] == pytest.approx(2.0)
    assert metrics["tpot_shift_at_s"] == pytest.approx((14 * 10 + 8) / 1e3)
    assert "tpot_drift" not in compute_metrics(records[:40], concurrency=4)


@pytest.mark.parametrize(("slow", "expected"), [(0, 0.0), (1, 0.1)])
def test_far_out_requests_are_counted(slow: int, expected: float):
    ends = [20, 21, 22, 23, 24, 25, 26, 27, 37, 38 + 962 * slow]  # Q3 26.75, so far out is 40.25
    records = [record(i, sent_ms=0, chunks={10: 1}, end_ms=end) for i, end in enumerate(ends)]
    assert compute_metrics(records)["e2e_outlier_share"] == pytest.approx(expected)
    assert "e2e_outlier_share" not in compute_metrics(records[:3])
