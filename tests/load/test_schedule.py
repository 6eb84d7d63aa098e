import random
from itertools import pairwise

import pytest

from settings.workload import Arrivals
from tasks.domain.errors import InputError
from tasks.load.schedule import (
    Schedule,
    constant,
    gamma,
    plan_schedule,
    poisson,
    ramp,
    read_stamps,
    share,
    stretch,
)
from tasks.load.target import Level


def test_a_concurrency_has_slots_and_no_times():
    schedule = plan_schedule(Level(concurrency=4), 10, random.Random(1))
    assert schedule == Schedule((0,) * 10, paced=False, slots=4)


def test_no_more_slots_than_requests():
    assert plan_schedule(Level(concurrency=64), 3, random.Random(1)).slots == 3


def test_a_rate_has_times_and_no_slots():
    schedule = plan_schedule(Level(request_rate=100.0), 10, random.Random(1))
    assert schedule.paced
    assert schedule.slots == 0
    assert schedule.due_ns == poisson(100.0, 10, random.Random(1))


def test_a_level_needs_one_or_the_other():
    with pytest.raises(ValueError, match="concurrency or a request rate"):
        plan_schedule(Level(), 1, random.Random(1))


def test_poisson_arrivals_start_at_zero_and_have_exponential_gaps():
    times = poisson(50.0, 20_001, random.Random(7))
    gaps_s = [(later - earlier) / 1e9 for earlier, later in pairwise(times)]
    mean = sum(gaps_s) / len(gaps_s)
    deviation = (sum((gap - mean) ** 2 for gap in gaps_s) / len(gaps_s)) ** 0.5
    assert times[0] == 0
    assert mean == pytest.approx(0.02, rel=0.02)
    assert deviation == pytest.approx(mean, rel=0.03)


def test_the_seed_decides():
    assert poisson(5.0, 9, random.Random(1)) == poisson(5.0, 9, random.Random(1))
    assert poisson(5.0, 9, random.Random(1)) != poisson(5.0, 9, random.Random(2))


def test_poisson_of_nothing_and_of_one():
    assert poisson(5.0, 0, random.Random(1)) == ()
    assert poisson(5.0, 1, random.Random(1)) == (0,)


def test_requests_and_slots_are_dealt_to_processes():
    hands = share(Schedule((0,) * 7, paced=False, slots=5), 2)
    assert [list(indices) for _, indices in hands] == [[0, 2, 4, 6], [1, 3, 5]]
    assert [hand.slots for hand, _ in hands] == [3, 2]


def test_times_follow_their_requests():
    hands = share(Schedule((0, 10, 20, 30), paced=True, slots=0), 2)
    assert [hand.due_ns for hand, _ in hands] == [(0, 20), (10, 30)]
    assert all(hand.slots == 0 for hand, _ in hands)


def test_a_conversation_stays_with_its_process():
    schedule = Schedule((0,) * 6, paced=False, slots=2, after=(-1, 0, -1, 2, -1, 4))
    hands = share(schedule, 2)
    assert [indices for _, indices in hands] == [[0, 1, 4, 5], [2, 3]]
    assert [hand.after for hand, _ in hands] == [(-1, 0, -1, 4), (-1, 2)]


def test_no_process_without_a_slot():
    assert len(share(Schedule((0,) * 9, paced=False, slots=2), 8)) == 2
    assert len(share(Schedule((0, 1), paced=True, slots=0), 8)) == 2


def gaps_s(times):
    return [(after - before) / 1e9 for before, after in pairwise(times)]


def test_constant_arrivals_are_even():
    assert constant(4.0, 4) == (0, 250_000_000, 500_000_000, 750_000_000)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_arrivals_keep_the_rate_and_are_as_bursty_as_asked(burstiness):
    gaps = gaps_s(gamma(100.0, 20_000, burstiness, random.Random(1)))
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.01, rel=0.05)
    assert deviation / mean == pytest.approx(burstiness**-0.5, rel=0.05)


def test_a_ramp_grows_evenly_from_rate_to_rate():
    times = ramp(10.0, 30.0, 200)
    assert times[0] == 0
    assert times[-1] / 1e9 == pytest.approx(2 * 200 / 40, rel=0.01)
    gaps = gaps_s(times)
    assert (1 / gaps[0], 1 / gaps[-1]) == (pytest.approx(10, rel=0.1), pytest.approx(30, rel=0.1))
    half = sum(at < 5e9 for at in times)  # the rate is 20 by then: 75 have come
    assert half == pytest.approx(75, abs=1)


def test_a_ramp_may_fall():
    gaps = gaps_s(ramp(30.0, 10.0, 200))
    assert gaps == sorted(gaps)


def test_a_trace_keeps_its_pattern_at_another_rate(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 1000, "input_length": 5}\n1300\n\n{"timestamp": 2000}\n9000\n')
    assert read_stamps(path) == [1000, 1300, 2000, 9000]
    assert stretch(read_stamps(path), 2.0, 3) == (0, 300_000_000, 1_000_000_000)
    arrivals = Arrivals(kind="trace", file=str(path))
    schedule = plan_schedule(Level(request_rate=2.0), 3, random.Random(1), arrivals)
    assert schedule.due_ns == (0, 300_000_000, 1_000_000_000)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1\nsoon\n", "line 2: 'soon' is neither a number nor has a timestamp"),
        ('{"time": 3}', "line 1"),
        ("NaN", "line 1"),
        ("1\n2\n", "has 2 time stamps; 3 requests need as many"),
    ],
)
def test_a_bad_trace_is_named(text, fault, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=fault):
        stretch(read_stamps(path), 1.0, 3)


def test_a_trace_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"arrivals\.file: .*No such file"):
        read_stamps(tmp_path / "none")


def test_stamps_that_are_all_one_come_at_once():
    assert stretch([5.0, 5.0], 1.0, 2) == (0, 0)
