"""Nights in a store: what got worse for real, since when, and what changed that night."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from flows.cli import run_command
from flows.commands.report import nights_json
from tasks.domain.configuration import TrialVerdict
from tasks.domain.facts import StackReport
from tasks.results.conclusion import REGRESSION, conclude
from tasks.results.folders import SweepFolder
from tasks.results.history import history
from tasks.results.nights import past_nights, read_board
from tasks.results.records import SweepState
from tasks.results.regression import Standing, standing
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep, load_sweep, record_stack, set_state
from tasks.results.terminal import print_history
from tasks.results.view import view
from tests.results import factory
from tests.results.factory import CUDNN, LESS_MEMORY, NIGHT, measured, trial

BASE = trial(baseline=True, cuda_graph_max_bs=64)
TUNED = trial(cuda_graph_max_bs=128)
SLOW = trial(cuda_graph_max_bs=256)
DAY = 86_400
_WIGGLE = np.random.default_rng(5).normal(0, 0.01, (60, 3))


def night(
    store: Path,
    day: int,
    speeds: tuple[float, ...] = (1, 1, 1),
    *,
    driver: str = "580.95.05",
    state: SweepState = SweepState.COMPLETED,
    trials: tuple = (BASE, TUNED, SLOW),
    result_changes: dict | None = None,
    **changes: object,
) -> SweepFolder:
    """One night: 1,200, 1,300 and 1,100 tokens/s with 1 % of noise, times `speeds`."""
    folder = create_sweep(store, factory.sweep(**changes), now=NIGHT + day * DAY)
    record_stack(folder, stack(driver), now=NIGHT + day * DAY)
    for index, (wanted, usual) in enumerate(zip(trials, (1200, 1300, 1100), strict=False)):
        speed = usual * speeds[index] * float(np.exp(_WIGGLE[day, index]))
        save_trial(folder, measured(wanted, speed, **(result_changes or {})))
    set_state(folder, state, now=NIGHT + day * DAY + 3600)
    return folder


def stack(driver: str) -> StackReport:
    report = factory.stack_report()
    gpus = tuple(replace(gpu, driver_version=driver) for gpu in report.facts.gpus)
    return replace(report, facts=replace(report.facts, gpus=gpus))


def nights(store: Path, count: int, **more: object) -> None:
    for day in range(count):
        night(store, day, **more)


def of(folder: SweepFolder) -> Standing:
    return standing(folder.store, folder.sweep_id, load_sweep(folder.store, folder.sweep_id).sweep)


def concluded(folder: SweepFolder):
    return conclude(view(load_sweep(folder.store, folder.sweep_id)), of(folder))


def test_a_loss_ends_the_second_night_as_a_regression_and_names_the_driver(tmp_path: Path):
    nights(tmp_path, 10)
    first = night(tmp_path, 10, (0.9, 0.9, 0.9), driver="585.10")
    assert of(first).regressions == ()
    said = concluded(first)
    assert said.good
    assert "is far off tonight" in said.message
    assert "another such night is a regression" in said.message

    second = night(tmp_path, 11, (0.9, 0.9, 0.9), driver="585.10")
    ended = concluded(second)
    assert (ended.state, ended.name, ended.good) == (SweepState.REGRESSION, REGRESSION, False)
    assert "output_throughput is 10.0 % lower" in ended.message
    assert "since 2026-12-10 02:00 UTC over all configurations and levels" in ended.message
    assert "that night changed driver: 580.95.05 → 585.10" in ended.message

    set_state(second, ended.state, now=NIGHT, reason=ended.message)
    third = night(tmp_path, 12, (0.9, 0.9, 0.9), driver="585.10")
    assert concluded(third).good, "a regression is told once"
    assert [s.alarm for s in of(third).shifts].count(True) >= 1, "and stays in the history"


def test_a_loss_that_no_night_could_tell_is_told_by_the_next(tmp_path: Path):
    nights(tmp_path, 10)
    for day in (10, 11):
        night(tmp_path, day, (0.9, 0.9, 0.9), state=SweepState.CANCELLED)
    assert of(night(tmp_path, 12, (0.9, 0.9, 0.9))).regressions


def test_a_loss_of_what_nobody_deploys_is_history_but_no_alarm(tmp_path: Path):
    nights(tmp_path, 10)
    night(tmp_path, 10, (1, 1, 0.7))
    folder = night(tmp_path, 11, (1, 1, 0.7))
    found = of(folder)
    assert found.shifts
    assert found.regressions == ()
    assert concluded(folder).good
    night(tmp_path, 12, (1, 0.7, 1))
    assert of(night(tmp_path, 13, (1, 0.7, 1))).regressions, "this one was the best"


def test_a_constraint_that_got_worse_is_a_regression(tmp_path: Path):
    nights(tmp_path, 10)

    def slower(day: int) -> SweepFolder:
        folder = night(tmp_path, day, state=SweepState.RUNNING)
        for result in load_sweep(tmp_path, folder.sweep_id).trials:
            levels = tuple(
                replace(level, metrics={**level.metrics, "p99_ttft_ms": 1900.0})
                for level in result.levels
            )
            save_trial(folder, replace(result, levels=levels))
        set_state(folder, SweepState.COMPLETED, now=NIGHT)
        return folder

    slower(10)
    (told, *_) = of(slower(11)).regressions
    assert (told.metric, told.better) == ("p99_ttft_ms", False)
    assert told.ratio == pytest.approx(1900 / 1414.4, rel=0.01)


def test_a_gain_is_no_alarm(tmp_path: Path):
    nights(tmp_path, 10)
    night(tmp_path, 10, (1.1, 1.1, 1.1))
    folder = night(tmp_path, 11, (1.1, 1.1, 1.1))
    assert concluded(folder).good
    assert all(shift.better for shift in of(folder).shifts)


@pytest.mark.parametrize(
    "change",
    [
        {"trials": tuple(replace(t, trial_id=t.trial_id[::-1]) for t in (BASE, TUNED, SLOW))},
        {"workloads": [{"name": "chat", "output_len": 2048, "concurrency": [1, 16, 64]}]},
        {"result_changes": {"remedies": (LESS_MEMORY,)}},
        {"host": "another"},
    ],
    ids=["configurations", "workload", "altered", "host"],
)
def test_an_intended_change_begins_a_new_history(tmp_path: Path, change: dict):
    nights(tmp_path, 10)
    night(tmp_path, 10, (0.5, 0.5, 0.5), **change)
    found = of(night(tmp_path, 11, (0.5, 0.5, 0.5), **change))
    assert found.shifts == ()
    assert {level.nights for level in found.levels} == {1}


def test_a_remedy_that_alters_nothing_goes_on_with_the_history(tmp_path: Path):
    nights(tmp_path, 3)
    found = of(night(tmp_path, 3, result_changes={"remedies": (CUDNN,)}))
    assert {level.nights for level in found.levels} == {3}


def test_doubtful_trials_and_other_sweeps_are_left_out(tmp_path: Path):
    nights(tmp_path, 4)
    night(tmp_path, 4, result_changes={"verdict": TrialVerdict.SUSPECT})
    night(tmp_path, 5, name="another")
    night(tmp_path, 6, state=SweepState.RUNNING)
    night(tmp_path, 7).record.write_text("{")
    found = of(night(tmp_path, 8))
    assert {level.nights for level in found.levels} == {4}
    assert len(found.nights) == 6
    assert len(found.warnings) == 1


def test_a_damaged_summary_is_named_and_the_rest_goes_on(tmp_path: Path):
    nights(tmp_path, 4)
    damaged = night(tmp_path, 4)
    damaged.summary.write_bytes(b"PAR1")
    found = of(night(tmp_path, 5))
    assert {level.nights for level in found.levels} == {4}
    assert str(damaged.summary) in found.warnings[0]


def test_the_first_night_and_a_night_without_results(tmp_path: Path):
    empty = create_sweep(tmp_path, factory.sweep(), now=NIGHT - DAY)
    assert (of(empty).shifts, of(empty).levels) == ((), ())
    first = of(night(tmp_path, 0))
    assert {(level.nights, level.band, level.center) for level in first.levels} == {(0, None, None)}


def test_the_history_shows_what_shifted_and_what_is_expected(tmp_path: Path, monkeypatch):
    nights(tmp_path, 10)
    night(tmp_path, 10, (0.9, 0.9, 0.9), driver="585.10")
    last = night(tmp_path, 11, (0.9, 0.9, 0.9), driver="585.10")
    console = Console(file=StringIO(), width=120)
    print_history(console, history(tmp_path), [of(last)])
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "% lower" in said
    assert "driver: 580.95.05 → 585.10" in said
    assert "cuda_graph_max_bs=128" in said
    assert "expected" in said

    config = tmp_path / "settings.toml"
    config.write_text(f'store = "{tmp_path}"\n')
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", str(config))
    content = json.loads(json.dumps(nights_json("kimi-k2.5-nightly", 30)))
    assert len(content["nights"]) == 12
    shift = content["shifts"][0]
    assert shift["changes"] == ["driver: 580.95.05 → 585.10"]
    assert shift["ratio"] == pytest.approx(0.9, abs=0.02)
    assert shift["began"].startswith("20261210")
    assert content["levels"][0]["band"] is None or len(content["levels"][0]["band"]) == 2
    assert run_command(["history", "--json"]) == 0


def test_levels_are_in_the_metrics_own_unit(tmp_path: Path):
    nights(tmp_path, 8)
    levels = of(night(tmp_path, 8)).levels
    tuned = next(
        level
        for level in levels
        if level.trial_id == TUNED.trial_id and level.metric == "output_throughput"
    )
    assert (tuned.label, tuned.nights, tuned.deployable) == ("cuda_graph_max_bs=128", 8, True)
    assert tuned.center == pytest.approx(1300, rel=0.01)
    assert tuned.band is not None
    assert tuned.band.low < tuned.center < tuned.band.high
    assert not next(level for level in levels if level.trial_id == SLOW.trial_id).deployable


@pytest.mark.parametrize(("searched", "series"), [(False, 1), (True, 2)])
def test_another_slo_is_another_history_where_a_search_keeps_it(
    tmp_path: Path, searched: bool, series: int
):
    levels = {"largest": {"of": "concurrency", "low": 1, "high": 64}} if searched else None
    for day, ttft_ms in enumerate((500, 400)):
        load = {"name": "chat", "requests": 320, "slo": {"ttft_ms": ttft_ms}}
        load |= levels or {"concurrency": [64]}
        objective = {"metric": "output_throughput", "workload": "chat"}
        night(tmp_path, day, trials=(BASE,), workloads=[load], objective=objective)
    nights, _ = past_nights(tmp_path, "kimi-k2.5-nightly", "blackwell", "9")
    board = read_board(tmp_path, nights, ["output_throughput"])
    here = [one for one in board.series if one.cell.level == "c64"]
    assert len(here) == series
