"""What a trial's runs make of it."""

from dataclasses import replace

from tasks.domain.configuration import TrialVerdict
from tasks.domain.measurement import RunVerdict, SearchRole, Validity
from tasks.results.judgement import judged, unmeasured
from tests.results import factory
from tests.results.factory import attempt, measured, trial


def test_all_runs_valid_is_measured():
    result = judged(measured(trial(), 100))
    assert (result.verdict, result.reason) == (TrialVerdict.MEASURED, "")


def test_the_worst_run_decides_and_says_why():
    good = factory.level(100)
    bad = replace(factory.level(100), verdict=RunVerdict(Validity.INVALID, ("clock stepped",)))
    result = judged(replace(measured(trial(), 100), levels=(good, bad)))
    assert result.verdict is TrialVerdict.INVALID
    assert "clock stepped" in result.reason


def test_a_cross_check_that_doubts_itself_decides_nothing_but_one_that_failed_does():
    doubts = RunVerdict(Validity.SUSPECT, ("its own delay is unknown",))
    check = replace(factory.level(90), workload="check", verdict=doubts, client={"engine": "m"})
    result = judged(replace(measured(trial(), 100), levels=(factory.level(100), check)))
    assert (result.verdict, result.reason) == (TrialVerdict.MEASURED, "")
    failed = replace(check, verdict=RunVerdict(Validity.INVALID, ("no request finished",)))
    result = judged(replace(result, levels=(factory.level(100), failed)))
    assert result.verdict is TrialVerdict.INVALID


def test_the_steps_of_a_search_are_not_judged_but_its_answer_is():
    overload = RunVerdict(Validity.INVALID, ("requests failed",))
    step = replace(factory.level(100), verdict=overload, search=SearchRole.STEP)
    found = replace(factory.level(100), search=SearchRole.FOUND)
    result = measured(trial(), 100)
    assert judged(replace(result, levels=(step, found))).verdict is TrialVerdict.MEASURED
    assert judged(replace(result, levels=(step,))).verdict is TrialVerdict.MEASURED
    doubtful = replace(found, verdict=RunVerdict(Validity.SUSPECT, ("it contradicts itself",)))
    judgement = judged(replace(result, levels=(step, doubtful)))
    assert judgement.verdict is TrialVerdict.SUSPECT
    assert judgement.reason == "chat slo: it contradicts itself"


def test_nothing_measured_is_invalid():
    result = judged(replace(measured(trial(), 100), levels=()))
    assert result.verdict is TrialVerdict.INVALID


def test_a_repeat_that_failed_is_not_forgotten_by_a_later_one_that_did_not():
    wanted = trial()
    result = measured(wanted, 100)
    first = {level.repeat for level in result.levels}
    lost = replace(attempt(wanted), number=9, repeat=max(first) + 1)
    result = judged(replace(result, attempts=(*result.attempts, lost)))
    assert result.verdict is TrialVerdict.SUSPECT
    assert f"repeat {lost.repeat} was not measured" in result.reason


def test_what_earlier_repeats_measured_is_kept_and_doubted():
    result = unmeasured(measured(trial(), 100), TrialVerdict.PRUNED, "out of memory")
    assert result.verdict is TrialVerdict.SUSPECT
    assert result.levels
    assert "out of memory" in result.reason
