"""Order effects and outliers against numbers worked by hand, and where a person is told."""

import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from tasks.domain.configuration import TrialResult
from tasks.results.cells import Cell
from tasks.results.changes import clock_changes
from tasks.results.comparison import compare_with_baseline
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.report_json import report_json
from tasks.results.stability import order_effect, outliers, shifted_runs, stability
from tasks.results.terminal import print_report
from tasks.results.view import view
from tests.results import factory
from tests.results.factory import NIGHT

CELL, METRIC = Cell("chat", "c64"), "output_throughput"
HOUR = 3600.0


def trial(name: str, runs: dict[float, float], *, baseline: bool = False) -> TrialResult:
    """A trial launched at some hours of the night, with the value that each launch had."""
    wanted = replace(factory.trial(baseline=baseline, name=name), trial_id=name)
    attempts = tuple(
        factory.attempt(wanted, number, repeat=number, started_at=NIGHT + hour * HOUR)
        for number, hour in enumerate(runs, 1)
    )
    return factory.measured(wanted, *runs.values(), attempts=attempts)


def stored(*results: TrialResult) -> StoredSweep:
    record = SweepRecord("s", factory.sweep(), SweepState.COMPLETED, NIGHT, NIGHT)
    return StoredSweep(record, results)


@pytest.mark.parametrize(
    "results",
    [
        (),
        (trial("a", {0: 100}),),
        (trial("a", {0: 100, 1: 99}),),  # one slope, no freedom left
        (trial("a", {0: 100}), trial("b", {1: 90}), trial("c", {2: 80})),
    ],
)
def test_too_few_launches_have_no_order_effect(results):
    assert order_effect(results, CELL, METRIC) is None


def test_order_effect_by_hand():
    """Two trials, each at two times: ln falls by 0.02 in 2 h, and by 0.01 in 2 h.

    Centred t is ±1, y is ∓0.01 and ∓0.005: b = -(0.02 + 0.01) / 4 = -0.0075; what is left is
    ±0.0025 four times, 2.5e-5 in sum; f = 4 - 2 - 1 = 1, so its error is sqrt(2.5e-5 / 4) = 0.0025.
    t(1) at 97.5 % is 12.706.
    """
    results = (
        trial("a", {0: math.exp(7.02), 2: math.exp(7.0)}),
        trial("b", {1: math.exp(6.01), 3: math.exp(6.0)}),
    )
    found = order_effect(results, CELL, METRIC)
    assert found is not None
    assert found.per_hour == pytest.approx(-0.0075)
    assert found.interval.high - found.per_hour == pytest.approx(12.7062 * 0.0025, rel=1e-5)
    assert found.p_value == pytest.approx(2 * stats.t.cdf(-3, 1))
    assert (found.hours, found.launches) == (3, 4)
    assert found.over_the_night == pytest.approx(math.exp(-0.0225) - 1)


def test_order_effect_is_least_squares_with_a_level_for_each_trial():
    draw = np.random.default_rng(3)
    hours, level = draw.uniform(0, 8, (4, 3)), np.array([[6.0], [7.0], [7.5], [8.0]])
    logs = level - 0.03 * hours + draw.normal(0, 0.01, hours.shape)
    results = [trial(str(i), dict(zip(hours[i], np.exp(logs[i]), strict=True))) for i in range(4)]
    design = np.column_stack([hours.ravel(), np.repeat(np.eye(4), 3, axis=0)])
    expected, left, *_ = np.linalg.lstsq(design, logs.ravel(), rcond=None)
    error = math.sqrt(left[0] / 7 * np.linalg.inv(design.T @ design)[0, 0])
    found = order_effect(results, CELL, METRIC)
    assert found is not None
    assert found.per_hour == pytest.approx(expected[0])
    assert found.interval.low == pytest.approx(expected[0] - stats.t.ppf(0.975, 7) * error)


def test_a_night_without_noise():
    flat = [trial(n, {0: 100, 1: 100, 2: 100}) for n in "ab"]
    found = order_effect(flat, CELL, METRIC)
    assert found is not None
    assert (found.per_hour, found.p_value) == (0, 1)
    assert outliers(flat, CELL, METRIC) == ()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_runs_have_no_outlier(count: int):
    assert outliers([trial("a", dict.fromkeys(range(count), 100.0))], CELL, METRIC) == ()


def test_outlier_by_hand():
    """Residuals ±0.001 in five trials of two, ±0.05 in the sixth: f = 12 - 6 - 1 = 5.

    v = 0.05² / (1/2) = 0.005; the sum of squares is 10e-6 + 0.005; the rest but v is 1e-5, so
    t = sqrt(0.005) / sqrt(1e-5 / 5) = 50.
    """
    results = [trial(str(i), {i: math.exp(7.001), i + 9: math.exp(6.999)}) for i in range(5)]
    odd = trial("odd", {5: math.exp(7.05), 14: math.exp(6.95)})
    found = outliers([*results, odd], CELL, METRIC)
    assert [(each.label, each.repeat) for each in found] == [("name=odd", 1), ("name=odd", 2)]
    assert found[0].deviation == pytest.approx(math.expm1(0.05))
    assert found[0].p_value == pytest.approx(12 * 2 * stats.t.cdf(-50, 5))
    assert outliers(results, CELL, METRIC) == ()


def test_noise_is_no_outlier_and_single_runs_are_no_group():
    draw = np.random.default_rng(2)
    noisy = [
        trial(str(i), {i: 1000 * math.exp(draw.normal(0, 0.02)), i + 9: 1000.0}) for i in range(8)
    ]
    assert outliers([*noisy, trial("single", {3: 10.0})], CELL, METRIC) == ()


def test_a_drift_that_chance_explains_is_no_line():
    noisy = (
        trial("a", {0: 1000, 3: 900}),
        trial("b", {1: 1000, 4: 1010}),
        trial("c", {2: 1000, 5: 960}),
    )
    found = order_effect(noisy, CELL, METRIC)
    assert found is not None
    assert found.over_the_night < -0.02
    assert found.p_value > 0.01
    assert stability(stored(*noisy)) == ()


def drifting() -> tuple[TrialResult, ...]:
    """A night that loses 2 % an hour over 6 hours, with 0.1 % of noise."""
    draw = np.random.default_rng(5)
    made = []
    for number in range(3):
        hours = [number, number + 3]
        speeds = [1000 * math.exp(-0.02 * hour + draw.normal(0, 0.001)) for hour in hours]
        runs = dict(zip(hours, speeds, strict=True))
        made.append(trial(str(number), runs, baseline=number == 0))
    return tuple(made)


def test_a_drifting_night_says_so_everywhere():
    night = stored(*drifting())
    [line] = stability(night)
    assert line.startswith("output tok/s at chat/c64 drifted by -9.")
    assert "% an hour, from 6 launches" in line
    assert view(night).stability == (line,)
    console = Console(record=True, width=300)
    print_report(console, view(night))
    assert line in console.export_text()
    assert compare_with_baseline(night).stability == (line,)
    told = report_json(night)
    assert told["stability"] == [line]
    assert told["order_effect"]["per_hour"] == pytest.approx(-0.02, abs=0.001)


def test_a_small_drift_is_data_and_no_line():
    made = [trial(n, {i: 1000 - i, i + 3: 997 - i}) for i, n in enumerate("abc")]
    found = order_effect(made, CELL, METRIC)
    assert found is not None
    assert found.p_value < 0.01
    assert stability(stored(*made)) == ()


def test_runs_that_changed_midway_are_named_and_counted():
    levels = tuple(
        factory.level(1000, repeat=n, tpot_shift_ratio=1.12, tpot_shift_at_s=34.0)
        for n in range(1, 6)
    )
    mild = factory.level(1000, repeat=6, tpot_shift_ratio=0.96, tpot_shift_at_s=3.0)
    result = factory.measured(factory.trial(), levels=(*levels, mild))
    assert len(shifted_runs([result])) == 5
    lines = stability(stored(result))
    assert lines[0] == (
        "as given, chat/c64, repeat 1: the time per token changed by +12 % after 34 s of the run"
    )
    assert lines[-1] == "2 more runs changed their pace midway"
    assert len(lines) == 4


def test_clocks_under_load_are_among_what_changed():
    def night(clock: float) -> StoredSweep:
        level = factory.level(1000, gpu_sm_clock_mhz=clock, gpu_memory_clock_mhz=14_001.0)
        return stored(factory.measured(factory.trial(), levels=(level,)))

    assert list(clock_changes(night(1755), night(1980))) == [
        "SM clock under load: 1,980 → 1,755 MHz"
    ]
    assert list(clock_changes(night(1980), night(1975))) == []
    assert list(clock_changes(night(1980), stored())) == []
