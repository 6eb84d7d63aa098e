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
    ],
)
def test_what_contradicts_itself_is_refused(changes, fault):
    with pytest.raises(ValidationError, match=fault):
        workload(**{"request_rate": [] if "concurrency" in changes else [1], **changes})


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
