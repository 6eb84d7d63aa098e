"""When a level is known well enough, and that looking often doesn't make it seem so."""

import math
import random

import pytest

from settings.workload import Precision, Workload
from tasks.load.precision import BATCHES, ERROR, Looks, half_width
from tasks.load.run import run_level
from tasks.load.target import Level, Target
from tests.load.streaming_server import Behaviour, StreamingServer


def test_the_interval_is_students_over_the_means_of_batches():
    # Ten batches of two with the means 1 to 10: mean 5.5, deviation 3.02765, t(9, 0.975) 2.26216.
    values = [float(batch) for batch in range(1, 11) for _ in (0, 1)]
    assert half_width(values, 0.05) == pytest.approx(
        2.26216 * 3.02765 / math.sqrt(10) / 5.5, rel=1e-4
    )
    assert half_width([99.0, *values], 0.05) == half_width(values, 0.05)  # the oldest is left out


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * (BATCHES - 1), [0.0] * BATCHES])
def test_too_few_values_and_none_at_all_tell_nothing(values):
    assert half_width(values, 0.05) == math.inf


def test_values_without_a_spread_are_known_at_once():
    assert half_width([3.0] * BATCHES, 0.05) == 0


def latencies(source: random.Random, count: int, memory: float) -> list[list[int]]:
    """Answers whose latency has a mean of a second, a spread of 20 %, and a memory (AR(1))."""
    noise, answers = 0.0, []
    for index in range(count):
        noise = memory * noise + source.gauss(0, 0.2 * math.sqrt(1 - memory**2))
        answers.append([index, 1, round((1 + noise) * 1e9)])
    return answers


def looked_at(answers, within: float, slots: int):
    """Look after every four answers; how many it took, and the mean by then."""
    asked = Precision(
        within=within, metric="mean_e2e_latency_ms", min_requests=1, min_duration=0.001
    )
    looks = Looks(asked, slots, [1] * len(answers))
    for done in range(4, len(answers) + 1, 4):
        if looks.enough([{"elapsed_s": 1.0, "done": done}], answers[:done]):
            ends = [end for _, _, end in answers[slots:done]]
            return done, sum(ends) / len(ends) / 1e9
    return len(answers), None


def test_looking_often_is_no_more_often_wrong_than_the_interval_says():
    # Who looks after each answer, at 0.05 every time, is wrong in 12 of these 150.
    wrong = 0
    for seed in range(150):
        answers = latencies(random.Random(seed), 1500, memory=0.5)
        _, mean = looked_at(answers, within=0.1, slots=2)
        assert mean is not None
        wrong += abs(mean - 1) > 0.1
    assert wrong <= 150 * ERROR


def test_what_is_steadier_is_known_sooner():
    calm = [[index, 1, 1_000_000_000 + index % 2] for index in range(4000)]
    rough = latencies(random.Random(1), 4000, memory=0.0)
    assert looked_at(calm, 0.01, 16)[0] < looked_at(rough, 0.01, 16)[0]
    assert looked_at(calm, 0.01, 16)[0] >= 16 * (BATCHES + 1)  # a batch is no shorter than a round


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("mean_ttft_ms", 3.0), ("mean_tpot_ms", 2.0), ("mean_e2e_latency_ms", 9.0)],
)
def test_latencies_are_those_of_the_metric(metric, expected):
    looks = Looks(Precision(within=0.1, metric=metric), 0, [4])
    assert looks._latency(0, 3, 9) == expected


@pytest.mark.parametrize(("told", "metric"), [("reads", "output"), ("done", "request")])
def test_a_throughput_is_looked_at_by_what_was_told(told, metric):
    asked = Precision(
        within=0.05, metric=f"{metric}_throughput", min_requests=1, min_duration=0.001
    )
    looks = Looks(asked, 4, [1])
    steady = [
        looks.enough([{"elapsed_s": t / 2, "done": 4 * t, told: 4 * t, "in_flight": 4}], [])
        for t in range(1, 16)
    ]
    assert steady.index(True) == BATCHES  # ten rates, from the second word on
    assert looks.width < 1e-9


def test_nothing_is_enough_before_the_least():
    asked = Precision(within=0.5, metric="mean_ttft_ms", min_requests=50, min_duration=5)
    answers = [[index, 5, 9] for index in range(100)]
    for elapsed_s, done, expected in ((9.0, 49, False), (4.0, 60, False), (9.0, 60, True)):
        looks = Looks(asked, 0, [2] * 100)
        assert looks.enough([{"elapsed_s": elapsed_s, "done": done}], answers[:done]) is expected


async def test_a_level_ends_when_it_is_known_and_loses_nothing():
    precision = {"within": 0.9, "metric": "mean_ttft_ms", "min_requests": 8, "min_duration": 0.001}
    what = Workload(
        name="w", input_len=8, output_len=8, concurrency=[1], requests=5000, precision=precision
    )
    async with StreamingServer(Behaviour()) as server:
        target, level = Target(server.url), Level(concurrency=1)
        result = await run_level(target, what, level, seed=1, repeat=0)
    assert result.client["enough"] == 1
    assert 8 <= result.metrics["completed"] == 5000 - result.client["unsent"]
    assert result.metrics["failed"] == 0
    assert not any("stopped" in reason for reason in result.verdict.reasons)
