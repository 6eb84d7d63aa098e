"""When each request is due: computed before the run, in ns after its start."""

import random
from dataclasses import dataclass

from tasks.load.target import Level


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of a load.

    `due_ns` has an entry a request. In the closed loop (`paced` is False) they are all 0: a
    request goes out as soon as one of the `slots` is free. In the open loop any number may be in
    flight (`slots` is 0).
    """

    due_ns: tuple[int, ...]
    paced: bool
    slots: int


def plan_schedule(level: Level, requests: int, random_source: random.Random) -> Schedule:
    """Draw the times for a level: none for a concurrency, Poisson arrivals for a rate."""
    if level.concurrency is not None:
        return Schedule((0,) * requests, paced=False, slots=min(level.concurrency, requests))
    if level.request_rate is None:
        raise ValueError("a level needs a concurrency or a request rate")
    return Schedule(poisson(level.request_rate, requests, random_source), paced=True, slots=0)


def poisson(rate_per_s: float, requests: int, random_source: random.Random) -> tuple[int, ...]:
    """Draw Poisson arrivals: exponential gaps of mean 1/rate, the first request at 0.

    The times are sums from the start, so that no rounding or oversleeping adds up.
    """
    times, at_s = [], 0.0
    for _ in range(requests):
        times.append(round(at_s * 1e9))
        at_s += random_source.expovariate(rate_per_s)
    return tuple(times)


def share(schedule: Schedule, processes: int) -> list[tuple[Schedule, range]]:
    """Deal the requests out to processes like cards: schedules and the requests' numbers.

    The slots are dealt the same way, so the processes together keep the concurrency asked for.
    """
    count = len(schedule.due_ns)
    if not schedule.paced:
        processes = min(processes, schedule.slots)
    hands = []
    for number in range(min(processes, count)):
        indices = range(number, count, processes)
        slots = len(range(number, schedule.slots, processes))
        due_ns = schedule.due_ns[number::processes]
        hands.append((Schedule(due_ns, schedule.paced, slots), indices))
    return hands
