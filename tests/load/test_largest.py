"""The search for the largest level within an SLO: which runs it makes, and what it answers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from settings.workload import Largest, Workload
from tasks.domain.measurement import LevelResult, RunVerdict, SearchRole, Validity
from tasks.load.largest import (
    Step,
    answers,
    as_level,
    contradiction,
    following,
    foreseen,
    found_level,
    next_level,
    step_of,
)
from tasks.load.target import Level
from tests.results.factory import record

RATES = Largest(low=1, high=64)
SLOTS = Largest(of="concurrency", low=1, high=64, levels=16)


def run(level: Level, attainment: float, validity: Validity = Validity.VALID) -> LevelResult:
    metrics = {"slo_attainment": attainment, "completed": 90.0, "failed": 10.0}
    verdict = RunVerdict(validity, () if validity is Validity.VALID else ("late",))
    return LevelResult("w", level.concurrency, level.request_rate, 1, metrics, verdict)


def searched(wanted: Largest, attainment_at: Callable[[float], float]) -> list[float]:
    """The levels that a search runs on a server of which only the attainment counts."""
    steps: list[Step] = []
    while (level := next_level(wanted, steps)) is not None:
        attained = attainment_at(level)
        steps.append(Step(level, attained, 100, attained >= wanted.attainment))
    return [step.level for step in steps]


def breaks_above(limit: float) -> Callable[[float], float]:
    return lambda level: 1.0 if level <= limit else 0.5


def test_it_halves_what_is_left_by_ratio():
    # √(1·64) = 8, √(8·64) = 22.6, √(8·22.6) = 13.4, √(8·13.4) = 10.4, √(8·10.4) = 9.12
    assert searched(RATES, breaks_above(9)) == [1, 64, 8, 22.6, 13.4, 10.4, 9.12]


def test_it_is_over_when_nothing_holds_or_everything_does():
    assert searched(RATES, breaks_above(0.5)) == [1]
    assert searched(RATES, breaks_above(64)) == [1, 64]


def test_a_concurrency_is_found_exactly():
    # 1, 64, √64 = 8, √512 = 22.6, √(8·23) = 13.6, √(8·14) = 10.6, √(8·11) = 9.4, √(9·11) = 9.9
    assert searched(SLOTS, breaks_above(9)) == [1, 64, 8, 23, 14, 11, 9, 10]


@pytest.mark.parametrize("limit", [1, 1.5, 3, 9.9, 31, 63])
def test_the_answer_lies_between_the_last_kept_and_the_first_broken(limit: float):
    wanted = RATES.model_copy(update={"levels": 16})
    levels = searched(wanted, breaks_above(limit))
    kept, broken = max(x for x in levels if x <= limit), min(x for x in levels if x > limit)
    assert broken / kept <= 1.03
    assert len(levels) <= 10


def test_it_never_makes_more_runs_than_allowed():
    for most in (2, 3, 5):
        wanted = RATES.model_copy(update={"levels": most})
        assert len(searched(wanted, breaks_above(9))) == most


def test_levels_that_round_to_an_end_end_it():
    narrow = Largest(low=1, high=1.001)
    assert searched(narrow, breaks_above(1)) == [1, 1.001]
    next_door = Largest(of="concurrency", low=3, high=4)
    assert searched(next_door, breaks_above(3)) == [3, 4]


def test_a_run_that_cannot_be_trusted_keeps_nothing():
    level = as_level(RATES, 4)
    assert level == Level(request_rate=4)
    assert step_of(RATES, run(level, 0.99)) == Step(4, 0.99, 100, True)
    assert step_of(RATES, run(level, 0.98)).kept is False
    assert step_of(RATES, run(level, 1.0, Validity.SUSPECT)).kept is True
    assert step_of(RATES, run(level, 1.0, Validity.INVALID)).kept is False
    unknown = replace(run(level, 1.0), metrics={})
    assert step_of(RATES, unknown) == Step(4, 0.0, 0, False)


def test_the_answer_is_the_run_of_the_largest_level_kept():
    shares = ((1, 1.0), (64, 0.1), (8, 0.995), (22.6, 0.5))
    runs = [run(as_level(RATES, at), share) for at, share in shares]
    runs[2] = replace(runs[2], records=(record(1),))
    found = found_level(RATES, runs)
    assert found is not None
    assert (found.level, found.measured_level, found.search) == ("slo", "8/s", SearchRole.FOUND)
    assert found.metrics["largest_request_rate"] == 8
    assert found.metrics["largest_request_rate_below"] == 22.6
    assert found.metrics["slo_attainment"] == 0.995
    assert found.records == ()
    assert found.verdict == RunVerdict(Validity.VALID)


def test_an_answer_at_the_end_says_nothing_of_what_is_beyond():
    found = found_level(SLOTS, [run(as_level(SLOTS, at), 1.0) for at in (1, 64)])
    assert found is not None
    assert found.metrics["largest_concurrency"] == 64
    assert "largest_concurrency_below" not in found.metrics


def test_nothing_kept_is_no_answer():
    assert found_level(RATES, [run(as_level(RATES, 1), 0.5)]) is None
    assert found_level(RATES, []) is None


def test_a_heavier_level_that_did_better_is_a_contradiction():
    # pooled 0.9, error √(0.09 · 2/1000) = 0.0134: 0.2 is 15 of them, 0.03 is 2.2
    steps = [Step(4, 0.80, 1000, False), Step(8, 1.00, 1000, True)]
    assert contradiction(steps) == "100.0% kept the SLO at 8, but only 80.0% at 4"
    assert contradiction([Step(4, 0.885, 1000, False), Step(8, 0.915, 1000, False)]) == ""
    assert contradiction([Step(4, 1.0, 1000, True), Step(8, 0.2, 1000, False)]) == ""
    assert contradiction([Step(4, 0.0, 0, False), Step(8, 1.0, 10, True)]) == ""
    assert contradiction([]) == ""


def test_three_standard_errors_are_the_limit():
    # pooled 0.5, error √(0.25 · 2/200) = 0.05
    assert contradiction([Step(4, 0.42, 200, False), Step(8, 0.58, 200, False)])
    assert not contradiction([Step(4, 0.43, 200, False), Step(8, 0.57, 200, False)])


def test_an_answer_that_contradicts_the_other_runs_is_suspect():
    kept = run(as_level(RATES, 8), 1.0)
    lost = replace(
        run(as_level(RATES, 2), 0.5), metrics={"slo_attainment": 0.5, "completed": 100.0}
    )
    found = found_level(RATES, [run(as_level(RATES, 1), 1.0), lost, kept])
    assert found is not None
    assert found.verdict.validity is Validity.SUSPECT
    assert "the search contradicts itself: 100.0% kept" in found.verdict.reasons[0]


def test_a_workload_runs_its_levels_or_its_search():
    plain = Workload(name="w", concurrency=(1, 16), requests=32)
    assert following(plain, []) == Level(concurrency=1)
    assert following(plain, [run(Level(concurrency=1), 1.0)]) == Level(concurrency=16)
    assert following(plain, [run(Level(concurrency=n), 1.0) for n in (1, 16)]) is None
    assert foreseen(plain) == (Level(concurrency=1), Level(concurrency=16))
    asked = Workload.model_validate(
        {"name": "w", "largest": {"low": 1, "high": 64}, "slo": {"ttft_ms": 9}}
    )
    assert foreseen(asked) == (Level(request_rate=1), Level(request_rate=64))
    runs = [run(Level(request_rate=1), 1.0), run(Level(request_rate=64), 0.1)]
    assert following(asked, runs) == Level(request_rate=8)
    other = replace(run(Level(request_rate=32), 1.0), workload="other")
    (found,) = answers([plain, asked], [*runs, other])
    assert (found.workload, found.metrics["largest_request_rate"]) == ("w", 1)
