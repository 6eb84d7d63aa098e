"""A real night that is slower than the nights in its store ends as a regression."""

import time
from dataclasses import replace

import pytest

from settings.sweep_file import read_sweep
from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.measurement import LevelResult, RunVerdict, Validity
from tasks.results.records import SweepState
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep, set_state
from tasks.search.grid import plan_trials
from tests.flows.nightly import Nightly

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

USUAL = (1.0e6, 1.9e6, 0.7e6, 1.4e6, 1.1e6, 0.6e6, 1.6e6, 0.9e6, 1.2e6)
LAST_NIGHT = 250.0


def test_a_night_slower_than_its_past_ends_as_a_regression(nightly: Nightly):
    bed = nightly.bed
    path = bed.sweep(name="nightly", axes={})
    asked = read_sweep(path)
    now = time.time()
    for ago, speed in zip(range(10, 0, -1), (*USUAL, LAST_NIGHT), strict=True):
        past(bed.store, asked, now - ago * 86_400, speed)

    assert nightly.watched(sweep=path) == 1

    assert bed.report()["state"] == "regression"
    state = nightly.newest("nightly simulated")["state"]
    assert (state["type"], state["name"]) == ("FAILED", "Regression")
    assert "output_throughput is" in state["message"]


def past(store, asked, at, speed):
    """One earlier night in the store, with the throughput as given."""
    folder = create_sweep(store, asked, now=at)
    (planned,) = plan_trials(asked)
    verdict = RunVerdict(Validity.VALID)
    level = LevelResult("chat", 1, None, 1, {"output_throughput": speed}, verdict)
    level = replace(level, client={"load_from": "worker", "load_path": "loopback"})
    save_trial(folder, TrialResult(planned, TrialVerdict.MEASURED, levels=(level,)))
    set_state(folder, SweepState.COMPLETED, now=at + 60)
