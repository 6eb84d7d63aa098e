"""What tokens cost in energy, and pictures of the front."""

import base64
from dataclasses import replace

import pytest

from tasks.domain.configuration import TrialResult
from tasks.domain.measurement import LevelResult
from tasks.results.energy import energy_of
from tasks.results.pictures import artifact_key, front_pictures
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.selection import select
from tasks.results.view import view
from tests.results import factory
from tests.results.factory import NIGHT, measured, trial


def frugal(result: TrialResult, per_joule: float) -> TrialResult:
    def with_energy(level: LevelResult) -> LevelResult:
        told = {"output_tokens_per_joule": per_joule, "gpu_energy_j": 1.2e6}
        return replace(level, metrics={**level.metrics, **told})

    return replace(result, levels=tuple(with_energy(level) for level in result.levels))


BASE = frugal(measured(trial(baseline=True, cuda_graph_max_bs=64), 1000.0), 0.5)
FAST = frugal(measured(trial(cuda_graph_max_bs=128), 1100.0), 0.4)


def energy(*trials: TrialResult):
    return energy_of(trials, select(factory.sweep(), trials))


def test_the_energy_of_all_runs_and_who_gets_the_most_of_a_joule():
    found = energy(BASE, FAST)
    assert found is not None
    assert found.kwh == pytest.approx(6 * 1.2e6 / 3.6e6)
    assert (found.best and found.best.mean, found.baseline and found.baseline.mean) == (0.4, 0.5)
    assert (found.most, found.most_per_joule.mean) == (BASE, 0.5)


def test_what_may_not_be_chosen_is_not_praised():
    slow = frugal(measured(trial(cuda_graph_max_bs=8), 900.0), 0.9)
    late = replace(
        slow,
        levels=tuple(
            replace(each, metrics={**each.metrics, "p99_ttft_ms": 9e9}) for each in slow.levels
        ),
    )
    found = energy(BASE, FAST, late)
    assert found is not None
    assert found.most is BASE


def test_no_energy_is_known():
    assert energy(measured(trial(), 1000.0)) is None
    assert energy() is None


def test_a_front_is_a_picture_of_its_workload():
    levels = tuple(
        replace(each, metrics={**each.metrics, "median_tpot_ms": 20.0}) for each in BASE.levels
    )
    record = SweepRecord("id", factory.sweep(), SweepState.COMPLETED, NIGHT, NIGHT + 9)
    page = view(StoredSweep(record, (replace(BASE, levels=levels),)))
    ((key, address),) = front_pictures(page)
    assert key == "pareto-chat"
    kind, _, content = address.partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content).startswith(b"\x89PNG")
    assert list(front_pictures(view(StoredSweep(record, ())))) == []


@pytest.mark.parametrize(("name", "key"), [("Chat_v1.2", "chat-v1-2"), ("__", "workload")])
def test_an_artifact_has_a_key_that_prefect_takes(name: str, key: str):
    assert artifact_key(name) == key
