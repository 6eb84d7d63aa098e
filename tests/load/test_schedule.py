import random
from itertools import pairwise

import pytest

from tasks.load.schedule import Schedule, plan_schedule, poisson, share
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


def test_no_process_without_a_slot():
    assert len(share(Schedule((0,) * 9, paced=False, slots=2), 8)) == 2
    assert len(share(Schedule((0, 1), paced=True, slots=0), 8)) == 2
