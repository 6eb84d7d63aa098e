"""What each axis does, and what two do together, against grids worked by hand."""

import math
from dataclasses import replace

import pytest

from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult, TrialVerdict, Value
from tasks.results.effects import Effects, Setting, effects
from tasks.results.selection import select
from tests.results import factory
from tests.results.factory import measured, trial

A, B = Setting("a", 1, 0), Setting("b", 1, 0)
SPREAD = 0.01


def tried(throughput: float, **axes: Value) -> TrialResult:
    """Two runs, e^±0.01 of the throughput: its spread is 0.01 √2."""
    runs = (throughput * math.exp(SPREAD), throughput * math.exp(-SPREAD))
    wanted = trial(baseline=not any(axes.values()), **axes)
    wanted = replace(wanted, trial_id=str(sorted(axes.items())))
    return measured(wanted, *runs)


def found(*trials: TrialResult, sweep: Sweep | None = None) -> Effects:
    asked = sweep or factory.sweep(axes={}, baseline={}, constraints=[])
    return effects(asked, trials, select(asked, trials))


SQUARE = (
    tried(100.0, a=0, b=0),
    tried(110.0, a=1, b=0),
    tried(120.0, a=0, b=1),
    tried(145.2, a=1, b=1),
)
# a alone 1.1, b alone 1.2, together 1.452 = 1.1 · 1.2 · 1.1


def test_a_main_effect_is_the_mean_over_pairs_that_differ_in_nothing_else():
    of_a, of_b = found(*SQUARE).main
    assert (of_a.setting, of_b.setting) == (A, B)
    assert of_a.gain.value == pytest.approx(math.sqrt(1.10 * 1.21))
    assert (of_a.pairs, of_a.worst, of_a.best) == (2, pytest.approx(1.10), pytest.approx(1.21))
    # error = 0.01 √2 · √(4 · (1/2)² / 2) = 0.01; 4 degrees of freedom, t = 2.776445
    assert of_a.gain.interval is not None
    assert of_a.gain.interval.high / of_a.gain.value == pytest.approx(math.exp(0.02776445))


def test_an_interaction_is_what_two_do_together_beyond_each_alone():
    (both,) = found(*SQUARE).interactions
    assert (both.first, both.second, both.squares) == (A, B, 1)
    assert both.gain.value == pytest.approx(1.1)
    # error = 0.01 √2 · √(4 / 2) = 0.02
    assert both.gain.interval is not None
    assert both.gain.value / both.gain.interval.low == pytest.approx(math.exp(2 * 0.02776445))
    assert both.certain


def test_what_only_adds_up_is_no_interaction():
    apart = (*SQUARE[:3], tried(132.0, a=1, b=1))
    assert found(*apart).interactions == ()
    of_a, _ = found(*apart).main
    assert (of_a.worst, of_a.best) == (pytest.approx(1.1), pytest.approx(1.1))


def test_an_interaction_within_the_noise_is_not_certain():
    # 3 % against an interval of ± 5.6 %
    (both,) = found(*SQUARE[:3], tried(132.0 * 1.03, a=1, b=1)).interactions
    assert not both.certain


def test_the_strongest_certain_interaction_comes_first():
    trials = [
        tried(100 * 1.1**a * 1.2**b * 1.1 ** (a * b == 1) * 1.3 ** (a * b == 2), a=a, b=b)
        for a in (0, 1)
        for b in (0, 1, 2)
    ]
    assert [one.second.value for one in found(*trials).interactions] == [2, 1]


def test_a_grid_with_holes_uses_what_has_a_counterpart():
    holes = (SQUARE[0], SQUARE[1], SQUARE[3])
    of_a, of_b = found(*holes).main
    assert (of_a.pairs, of_a.gain.value) == (1, pytest.approx(1.1))
    assert (of_b.pairs, of_b.gain.value) == (1, pytest.approx(145.2 / 110))
    assert found(*holes).interactions == ()


def test_only_what_was_measured_as_asked_counts():
    altered = replace(SQUARE[1], remedies=(factory.LESS_MEMORY,))
    suspect = replace(SQUARE[1], verdict=TrialVerdict.SUSPECT)
    for other in (altered, suspect):
        of_a, _ = found(SQUARE[0], other, *SQUARE[2:]).main
        assert (of_a.pairs, of_a.gain.value) == (1, pytest.approx(1.21))


def test_less_is_better_where_the_goal_says_so():
    asked = factory.sweep(axes={}, baseline={}, constraints=[], objective={"metric": "mean_itl_ms"})
    of_a, _ = found(*SQUARE, sweep=asked).main
    # an ITL is the reciprocal of the throughput here
    assert of_a.gain.value == pytest.approx(math.sqrt(1.10 * 1.21))
    assert of_a.worst < of_a.best


def test_without_repeats_there_is_no_interval_and_no_certainty():
    once = [replace(one, levels=one.levels[:3]) for one in SQUARE]
    told = found(*once)
    assert [one.gain.interval for one in told.main] == [None, None]
    (both,) = told.interactions
    assert both.gain.value == pytest.approx(1.1)
    assert not both.certain


def test_nothing_varies_or_nothing_was_measured():
    assert found() == Effects()
    assert found(SQUARE[0]) == Effects()


def test_the_baseline_is_what_a_value_is_held_against():
    other = [replace(one, trial=replace(one.trial, baseline=False)) for one in SQUARE[:3]]
    base = replace(SQUARE[3], trial=replace(SQUARE[3].trial, baseline=True))
    of_a, _ = found(*other, base).main
    assert of_a.setting == Setting("a", 0, 1)
    assert of_a.gain.value == pytest.approx(1 / math.sqrt(1.10 * 1.21))


def test_an_interaction_that_costs_is_told_as_one_that_gains():
    (both,) = found(*SQUARE[:3], tried(132.0 * 0.9, a=1, b=1)).interactions
    assert both.gain.value == pytest.approx(0.9)
    assert both.certain


def test_a_trial_that_measured_nothing_costs_no_other_pair():
    nothing = replace(
        SQUARE[1],
        levels=tuple(
            replace(level, metrics={**level.metrics, "output_throughput": 0.0})
            for level in SQUARE[1].levels
        ),
    )
    of_a, _ = found(SQUARE[0], nothing, *SQUARE[2:]).main
    assert (of_a.pairs, of_a.gain.value) == (1, pytest.approx(1.21))
