"""When each request is due: computed before the run, in ns after its start."""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from settings.workload import Arrivals
from tasks.domain.errors import InputError
from tasks.load.target import Level

POISSON = Arrivals()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of a load.

    `due_ns` has an entry a request. In the closed loop (`paced` is False) they are all 0: a
    request goes out as soon as one of the `slots` is free. In the open loop any number may be in
    flight (`slots` is 0). `after` says which request each one follows, as soon as that one has
    been answered, or -1; it is empty where none does.
    """

    due_ns: tuple[int, ...]
    paced: bool
    slots: int
    after: tuple[int, ...] = ()

    @property
    def begins(self) -> tuple[int, ...]:
        """For each request the one that its conversation begins with."""
        begins: list[int] = []
        for number, before in enumerate(self.after or (-1,) * len(self.due_ns)):
            begins.append(number if before < 0 else begins[before])
        return tuple(begins)


def plan_schedule(
    level: Level, requests: int, random_source: random.Random, arrivals: Arrivals = POISSON
) -> Schedule:
    """Draw the times for a level: none for a concurrency, arrivals for a rate."""
    if level.concurrency is not None:
        return Schedule((0,) * requests, paced=False, slots=min(level.concurrency, requests))
    if level.request_rate is None:
        raise ValueError("a level needs a concurrency or a request rate")
    due_ns = arrive(arrivals, level.request_rate, requests, random_source)
    return Schedule(due_ns, paced=True, slots=0)


def arrive(
    arrivals: Arrivals, rate_per_s: float, requests: int, random_source: random.Random
) -> tuple[int, ...]:
    """Draw the arrivals that a workload asks for. Raises `InputError` for an unreadable trace."""
    match arrivals.kind:
        case "constant":
            return constant(rate_per_s, requests)
        case "gamma":
            return gamma(rate_per_s, requests, arrivals.burstiness, random_source)
        case "ramp":
            return ramp(arrivals.start, rate_per_s, requests)
        case "trace":
            return stretch(read_stamps(Path(arrivals.file or "")), rate_per_s, requests)
        case _:
            return poisson(rate_per_s, requests, random_source)


def poisson(rate_per_s: float, requests: int, random_source: random.Random) -> tuple[int, ...]:
    """Draw Poisson arrivals: exponential gaps of mean 1/rate, the first request at 0."""
    return _summed(random_source.expovariate(rate_per_s) for _ in range(requests))


def gamma(
    rate_per_s: float, requests: int, burstiness: float, random_source: random.Random
) -> tuple[int, ...]:
    """Draw gaps of mean 1/rate from a gamma distribution; burstiness, its shape, 1 is Poisson.

    The coefficient of variation of the gaps is 1 / sqrt(burstiness).
    """
    scale = 1 / (rate_per_s * burstiness)
    return _summed(random_source.gammavariate(burstiness, scale) for _ in range(requests))


def constant(rate_per_s: float, requests: int) -> tuple[int, ...]:
    """Space the requests evenly."""
    return tuple(round(number / rate_per_s * 1e9) for number in range(requests))


def ramp(start_per_s: float, end_per_s: float, requests: int) -> tuple[int, ...]:
    """Let the rate grow (or fall) evenly with time, from the first request to the last.

    Request k comes when the integral of the rate is k: r0 t + (r1 - r0) t^2 / (2 T) = k, with
    T = 2 n / (r0 + r1), solved for t in the form that divides by no small difference.
    """
    growth = (end_per_s**2 - start_per_s**2) / requests
    times_s = (
        2 * k / (start_per_s + math.sqrt(start_per_s**2 + growth * k)) for k in range(requests)
    )
    return tuple(round(at_s * 1e9) for at_s in times_s)


def stretch(stamps: Sequence[float], rate_per_s: float, requests: int) -> tuple[int, ...]:
    """Take the first time stamps of a trace, and stretch them to a mean rate."""
    if len(stamps) < requests:
        fault = f"has {len(stamps)} time stamps; {requests} requests need as many"
        raise InputError("arrivals.file", [fault])
    ordered = sorted(stamps)[:requests]
    length = ordered[-1] - ordered[0]
    factor = (requests - 1) / rate_per_s / length if length > 0 else 0.0
    return tuple(round((at - ordered[0]) * factor * 1e9) for at in ordered)


def read_stamps(path: Path) -> list[float]:
    """Read a trace: on each line a number, or a JSON object with `timestamp`."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("arrivals.file", [f"{path}: {error}"]) from error
    return [_stamp(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _stamp(path: Path, number: int, line: str) -> float:
    try:
        found = json.loads(line)
        stamp = float(found["timestamp"] if isinstance(found, dict) else found)
    except (ValueError, TypeError, KeyError):
        stamp = math.nan
    if not math.isfinite(stamp):
        fault = f"{path}, line {number}: {line[:60]!r} is neither a number nor has a timestamp"
        raise InputError("arrivals.file", [fault])
    return stamp


def _summed(gaps_s: Iterable[float]) -> tuple[int, ...]:
    """Times from gaps, the first at 0; sums from the start, so that no rounding adds up."""
    times, at_s = [], 0.0
    for gap_s in gaps_s:
        times.append(round(at_s * 1e9))
        at_s += gap_s
    return tuple(times)


def share(schedule: Schedule, processes: int) -> list[tuple[Schedule, list[int]]]:
    """Deal the requests out to processes like cards: schedules and the requests' numbers.

    The slots are dealt the same way, so the processes together keep the concurrency asked for. A
    conversation is one card.
    """
    begins = schedule.begins
    cards = {begin: number for number, begin in enumerate(dict.fromkeys(begins))}
    if not schedule.paced:
        processes = min(processes, schedule.slots)
    processes = min(processes, len(cards))
    hands = []
    for number in range(processes):
        indices = [i for i, begin in enumerate(begins) if cards[begin] % processes == number]
        slots = len(range(number, schedule.slots, processes))
        due_ns = tuple(schedule.due_ns[i] for i in indices)
        after = tuple(schedule.after[i] for i in indices) if schedule.after else ()
        hands.append((Schedule(due_ns, schedule.paced, slots, after), indices))
    return hands
