"""What a workload may say of its arrivals, files and bounds."""

import pytest
from pydantic import ValidationError

from settings.sweep import Sweep
from settings.workload import Arrivals, Slo, Workload


def workload(**changes) -> Workload:
    return Workload(**{"name": "w", **changes})


def test_a_word_is_enough_for_arrivals():
    assert workload(request_rate=[1], arrivals="constant").arrivals == Arrivals(kind="constant")
    assert workload(request_rate=[1]).arrivals.kind == "poisson"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"arrivals": "constant", "concurrency": [1]}, "means nothing without request_rate"),
        ({"arrivals": {"kind": "ramp", "burstiness": 2}}, "burstiness: means nothing for ramp"),
        ({"arrivals": {"kind": "poisson", "start": 2}}, "start: means nothing for poisson"),
        ({"arrivals": "trace"}, "a trace needs the file"),
        ({"arrivals": {"kind": "gamma", "burstiness": 0}}, "greater than 0"),
        ({"dataset": "file"}, "the dataset file needs one"),
        ({"dataset": "text", "file": "x"}, "means nothing for the dataset text"),
        ({"slo": {"ttft_ms": -1}}, "greater than 0"),
        ({"largest": {"low": 1, "high": 9}}, "needs an slo to keep"),
        ({"largest": {"low": 2, "high": 2}}, "2 is not above low, 2"),
        ({"largest": {"low": 1, "high": 9}, "concurrency": 1}, "give either concurrency"),
        ({"largest": {"of": "concurrency", "low": 1, "high": 2.5}}, "is a whole number"),
        ({"largest": {"low": 1, "high": 9, "levels": 1}}, "greater than or equal to 2"),
        (
            {
                "largest": {"of": "concurrency", "low": 1, "high": 100},
                "slo": {"ttft_ms": 9},
                "requests": 64,
            },
            "64 at concurrency 100",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(changes, fault):
    given = {"concurrency", "largest"} & set(changes)
    with pytest.raises(ValidationError, match=fault):
        workload(**{"request_rate": [] if given else [1], **changes})


@pytest.mark.parametrize(
    ("largest", "metric", "fault"),
    [
        ({"low": 1, "high": 9}, "largest_request_rate", ""),
        ({"low": 1, "high": 9}, "largest_concurrency", "look for the largest concurrency"),
        (None, "largest_request_rate", "'w' to look for the largest request_rate"),
    ],
)
def test_the_largest_level_is_an_objective_where_it_is_looked_for(largest, metric, fault):
    one = {"name": "w", "slo": {"ttft_ms": 9}, "largest": largest}
    one |= {} if largest else {"concurrency": 1}
    sweep = {
        "name": "s",
        "server": {"model_path": "/m"},
        "workloads": [one],
        "objective": {"metric": metric},
    }
    if not fault:
        assert Sweep.model_validate(sweep).workloads[0].most_levels == 7
        return
    with pytest.raises(ValidationError, match=fault):
        Sweep.model_validate(sweep)


def test_the_goodput_needs_bounds():
    sweep = {
        "name": "s",
        "server": {"model_path": "/m"},
        "workloads": [{"name": "w", "concurrency": [1]}],
        "objective": {"metric": "request_goodput"},
    }
    with pytest.raises(ValidationError, match="needs the workload 'w' to have an slo"):
        Sweep.model_validate(sweep)
    sweep["workloads"][0]["slo"] = {"ttft_ms": 200}
    assert Sweep.model_validate(sweep).workloads[0].slo == Slo(ttft_ms=200)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"concurrency": 2, "requests": 12, "turns": 3}, None),
        ({"request_rate": 2}, "conversations wait for their answers; give concurrency"),
        ({"concurrency": 2, "requests": 9, "turns": 3}, "give a multiple of 6, or 30 and more"),
    ],
)
def test_a_slot_of_conversations_is_a_conversation(fields, fault):
    fields = {"name": "w", "dataset": "conversations", **fields}
    if fault is None:
        assert Workload.model_validate(fields).turns == 3
        return
    with pytest.raises(ValidationError, match=fault):
        Workload.model_validate(fields)


def test_a_precision_may_be_a_number_alone():
    one = Workload.model_validate({"name": "w", "concurrency": 1, "precision": 0.01})
    assert (one.precision.within, one.precision.metric) == (0.01, "output_throughput")
    assert Workload.model_validate({"name": "w", "concurrency": 1}).precision.within is None
    with pytest.raises(ValidationError, match="less than 1"):
        Workload.model_validate({"name": "w", "concurrency": 1, "precision": 5})
