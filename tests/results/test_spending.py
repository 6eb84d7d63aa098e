"""Where the hours of a night went, against nights worked out by hand."""

from dataclasses import replace

import pytest

from tasks.domain.configuration import Spell, TrialResult, TrialVerdict
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.spending import Spending, hours_of
from tests.results import factory
from tests.results.factory import NIGHT, attempt, measured, trial


def night(*trials: TrialResult, lasted_s: float = 1000.0) -> StoredSweep:
    ended = NIGHT + lasted_s
    record = SweepRecord("id", factory.sweep(), SweepState.COMPLETED, NIGHT, ended, ended)
    return StoredSweep(replace(record, stacks=(factory.stack_report(),)), trials)


def spells(started_at: float, **seconds: float) -> tuple[Spell, ...]:
    found, at = [], started_at
    for doing, lasted_s in seconds.items():
        found.append(Spell(doing, at, lasted_s))
        at += lasted_s
    return tuple(found)


SERVED = {"clean": 10, "start": 20, "weights": 200, "kv_cache": 5, "graph_capture": 60}
MEASURED = {**SERVED, "warmup": 15, "canary": 4, "load": 96, "stop": 12}


def test_each_second_of_a_night_goes_somewhere():
    wanted = trial(baseline=True)
    died = attempt(wanted, 1, diagnosis=factory.cudnn_failure(), spells=spells(NIGHT, start=30))
    served = attempt(wanted, 2, spells=spells(NIGHT + 100, **MEASURED))
    found = hours_of(night(measured(wanted, 1000.0, attempts=(died, served))))
    assert found is not None
    assert found.seconds == {
        Spending.MEASURING: 100,
        Spending.LOADING: 240,
        Spending.CAPTURING: 60,
        Spending.FAILING: 30,
        Spending.WAITING: 570,
    }
    assert found.total_s == 1000
    assert found.gpus == 8
    assert found.gpu_hours(Spending.LOADING) == pytest.approx(8 * 240 / 3600)
    assert found.share(Spending.FAILING) == pytest.approx(0.03)


def test_a_launch_that_brought_nothing_to_measure_has_failed():
    wanted = trial()
    served = attempt(wanted, spells=spells(NIGHT, **SERVED))
    refused = TrialResult(wanted, TrialVerdict.INCORRECT, attempts=(served,))
    found = hours_of(night(refused))
    assert found is not None
    assert found.seconds[Spending.FAILING] == 295
    assert found.seconds[Spending.WAITING] == 705


def test_a_launch_of_another_repeat_is_not_the_one_that_was_measured():
    wanted = trial()
    lost = attempt(wanted, 1, repeat=2, spells=spells(NIGHT, start=40))
    kept = attempt(wanted, 2, repeat=1, spells=spells(NIGHT + 100, **MEASURED))
    found = hours_of(night(measured(wanted, 9.0, attempts=(lost, kept))))
    assert found is not None
    assert found.seconds[Spending.FAILING] == 40


def test_neighbours_that_go_on_the_same_are_one_stretch():
    wanted = trial()
    found = hours_of(
        night(measured(wanted, 9.0, attempts=(attempt(wanted, spells=spells(NIGHT, **MEASURED)),)))
    )
    assert found is not None
    assert [
        (each.spending, each.started_at - NIGHT, each.ended_at - NIGHT) for each in found.stretches
    ] == [
        (Spending.WAITING, 0, 10),
        (Spending.LOADING, 10, 235),
        (Spending.CAPTURING, 235, 295),
        (Spending.LOADING, 295, 310),
        (Spending.MEASURING, 310, 410),
        (Spending.WAITING, 410, 422),
    ]


def test_a_sweep_that_noted_no_spells_tells_what_it_knows():
    wanted = trial()
    (level, *_) = factory.levels(1000.0)
    level = replace(level, metrics={"duration": 50.0})
    result = replace(measured(wanted, 1000.0), levels=(level,))
    found = hours_of(night(result))
    assert found is not None
    assert found.seconds[Spending.LOADING] == 212.5
    assert found.seconds[Spending.MEASURING] == 50


def test_what_is_accounted_for_is_never_more_than_the_night():
    wanted = trial()
    long = attempt(wanted, spells=spells(NIGHT, weights=500, load=1000))
    found = hours_of(night(measured(wanted, 9.0, attempts=(long,))))
    assert found is not None
    assert found.total_s == 1500
    assert found.seconds[Spending.WAITING] == 0


def test_a_night_without_a_second_or_a_launch():
    assert hours_of(night(lasted_s=0)) is None
    found = hours_of(night())
    assert found is not None
    assert found.seconds[Spending.WAITING] == 1000
    assert found.stretches == ()


def test_a_slice_is_told_by_its_shares():
    wanted = trial()
    found = hours_of(
        night(measured(wanted, 9.0, attempts=(attempt(wanted, spells=spells(NIGHT, **MEASURED)),)))
    )
    assert found is not None
    first, second, *rest = found.slices(NIGHT, 4)
    # 250 s each: 10 of clean-up, 225 of loading, 15 of capturing; then 45, 15 of warm-up, 100, 12
    assert first[Spending.LOADING] == pytest.approx(225 / 250)
    assert first[Spending.WAITING] == pytest.approx(10 / 250)
    assert second[Spending.MEASURING] == pytest.approx(100 / 250)
    assert second[Spending.WAITING] == pytest.approx((12 + 78) / 250)
    assert [each[Spending.WAITING] for each in rest] == [1, 1]
    assert all(sum(each.values()) == pytest.approx(1) for each in (first, second, *rest))
