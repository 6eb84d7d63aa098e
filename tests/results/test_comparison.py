"""The four verdicts, and what refuses to be compared."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.commands.report import compared_json
from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.errors import ExitStatus, InputError
from tasks.results.cells import Cell
from tasks.results.comparison import (
    CellComparison,
    CellVerdict,
    UnlikeRuns,
    compare,
    compare_sweeps,
    compare_with_baseline,
    headline_metrics,
    judge,
)
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.saving import save_trial
from tasks.results.statistics import Interval, Noise, Ratio
from tasks.results.store import create_sweep, sweep_ids
from tests.results import factory
from tests.results.factory import NIGHT, measured, night, trial

TUNED = trial(cuda_graph_max_bs=128, speculative_steps=0)


def stored(
    *trials: TrialResult, sweep_id: str = "tonight", sweep: Sweep | None = None
) -> StoredSweep:
    record = SweepRecord(
        sweep_id, sweep or factory.sweep(), SweepState.COMPLETED, NIGHT, NIGHT, NIGHT + 3600
    )
    return StoredSweep(record, trials)


def at(cells: tuple[CellComparison, ...], cell: str, metric: str) -> CellComparison:
    return next(c for c in cells if str(c.cell) == cell and c.metric == metric)


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.09, 1.07, 1.11, CellVerdict.FASTER),
        (0.91, 0.89, 0.93, CellVerdict.SLOWER),
        (1.00, 0.99, 1.01, CellVerdict.SAME),
        (1.015, 1.012, 1.018, CellVerdict.SAME),
        (1.00, 0.90, 1.10, CellVerdict.INCONCLUSIVE),
        (1.05, 0.99, 1.11, CellVerdict.INCONCLUSIVE),
        (1.015, 1.005, 1.025, CellVerdict.INCONCLUSIVE),
    ],
)
def test_verdicts(value: float, low: float, high: float, verdict: CellVerdict):
    found = Ratio(value, 3, 3, Interval(low, high))
    assert judge(found, 0.02, lower=False)[0] is verdict
    turned = {CellVerdict.FASTER: CellVerdict.SLOWER, CellVerdict.SLOWER: CellVerdict.FASTER}
    assert judge(found, 0.02, lower=True)[0] is turned.get(verdict, verdict)


def test_single_runs_decide_nothing_however_far_apart():
    found = compare(measured(TUNED, 2000), measured(TUNED, 1000))
    cell = at(found.cells, "chat/c64", "output_throughput")
    assert cell.verdict is CellVerdict.INCONCLUSIVE
    assert cell.ratio is not None
    assert cell.ratio.value == pytest.approx(2)
    assert cell.note == "one run on a side: repeat to decide"


def test_repeats_decide():
    found = compare(measured(TUNED, 1308, 1310, 1306), measured(TUNED, 1199, 1200, 1201))
    assert at(found.cells, "chat/c64", "output_throughput").verdict is CellVerdict.FASTER
    latency = at(found.cells, "chat/c16", "median_itl_ms")
    assert latency.verdict is CellVerdict.FASTER
    assert latency.ratio is not None
    assert latency.ratio.value < 1
    assert at(found.cells, "chat/c1", "p99_ttft_ms").verdict is CellVerdict.SAME


def test_a_suspect_side_decides_nothing():
    doubtful = measured(TUNED, 1308, 1310, 1306, verdict=TrialVerdict.SUSPECT, reason="client late")
    cell = compare(doubtful, measured(TUNED, 999, 1000)).cells[0]
    assert (cell.verdict, cell.note) == (CellVerdict.INCONCLUSIVE, "suspect: client late")


def test_other_software_is_refused_unless_it_was_asked_for():
    new, old = measured(TUNED, 10, fingerprint="new"), measured(TUNED, 10, fingerprint="old")
    with pytest.raises(UnlikeRuns, match=r"fingerprint new against old.*--force") as caught:
        compare(new, old)
    assert caught.value.exit_status is ExitStatus.BAD_INPUT
    assert compare(new, old, force=True).cells

    cu128, cu130 = (trial(stack=f"~/{name}/bin/python3", stack_axis=name) for name in "ab")
    assert compare(
        measured(cu128, 10, fingerprint="new"), measured(cu130, 10, fingerprint="old")
    ).cells


def test_sweeps_are_matched_by_configuration_then_by_axes():
    moved = replace(TUNED, trial_id="elsewhere")
    only_mine, only_theirs = trial(cuda_graph_max_bs=8), trial(cuda_graph_max_bs=9)
    found = compare_sweeps(
        stored(measured(TUNED, 10), measured(only_mine, 10), night()[3]),
        stored(measured(moved, 10), measured(only_theirs, 10), sweep_id="last"),
    )
    assert [(p.trial_id, p.reference_id) for p in found.pairs] == [(TUNED.trial_id, "elsewhere")]
    assert (found.of, found.against) == ("tonight", "last")
    assert found.unmatched == (
        "cuda_graph_max_bs=8: not measured on the other side",
        "cuda_graph_max_bs=128 speculative_steps=3: incorrect, "
        "2 of 3 canary answers differ from the baseline's",
        "cuda_graph_max_bs=9: only on the other side",
    )


def test_other_workloads_are_refused_but_other_levels_are_not():
    content = factory.sweep().model_dump()["workloads"][0]
    longer = factory.sweep(workloads=[{**content, "output_len": 1024}])
    fewer = factory.sweep(workloads=[{**content, "concurrency": [1, 64]}])
    mine = stored(measured(TUNED, 10))
    with pytest.raises(UnlikeRuns, match="workload chat: output_len: 1024 → 512"):
        compare_sweeps(mine, stored(measured(TUNED, 10), sweep=longer))
    assert compare_sweeps(mine, stored(measured(TUNED, 10), sweep=fewer)).pairs


def test_what_else_changed_is_named():
    server = {**factory.sweep().server.model_dump(), "args": {"tp": 4}, "env": {}}
    old = stored(sweep=factory.sweep(server=server))
    found = compare_sweeps(stored(), old)
    assert "args.tp: 4 → 8" in found.changes
    assert "args.trust_remote_code: absent → True" in found.changes
    with_stack = replace(old, record=replace(old.record, stacks=(factory.stack_report(),)))
    changes = compare_sweeps(with_stack, old).changes
    assert "/root/ml-env/bin/python3 torch: absent → 2.9.1+cu130" in changes


def test_trials_against_their_baseline():
    found = compare_with_baseline(stored(*night()))
    assert [pair.label for pair in found.pairs] == ["cuda_graph_max_bs=128", "speculative_steps=3"]
    assert found.against == "baseline"
    assert len(found.unmatched) == 3
    with pytest.raises(InputError, match="its baseline was not measured"):
        compare_with_baseline(stored(night()[1]))


def test_a_sweep_is_about_its_objective_and_its_constraints():
    assert headline_metrics(factory.sweep())[:2] == ("output_throughput", "p99_ttft_ms")


def test_a_metric_that_one_side_lacks_is_inconclusive():
    other = replace(measured(TUNED, 10), levels=(factory.level(10, accept_length=2.5),))
    found = compare(other, measured(TUNED, 10), metrics=["accept_length"])
    assert [(c.verdict, c.note) for c in found.cells] == [
        (CellVerdict.INCONCLUSIVE, "not measured on both sides")
    ]


CELL = Cell("chat", "c64")


def test_single_runs_are_judged_by_the_noise_of_other_nights():
    usual = {(CELL, "output_throughput"): Noise(0.01, 30)}
    found = compare(measured(TUNED, 1100), measured(TUNED, 1000), usual=usual)
    cell = at(found.cells, "chat/c64", "output_throughput")
    assert (cell.verdict, cell.noise) == (CellVerdict.FASTER, usual[CELL, "output_throughput"])
    assert at(found.cells, "chat/c1", "output_throughput").verdict is CellVerdict.INCONCLUSIVE
    alike = compare(measured(TUNED, 1010), measured(TUNED, 1000), usual=usual)
    assert at(alike.cells, "chat/c64", "output_throughput").verdict is CellVerdict.INCONCLUSIVE


def test_single_runs_are_judged_by_the_noise_of_those_that_were_repeated():
    repeated = [measured(trial(cuda_graph_max_bs=n), 1000, 1004, 996) for n in range(3)]
    base = measured(trial(baseline=True), 1000)
    found = compare_with_baseline(stored(base, *repeated, measured(TUNED, 1100)))
    cell = at(found.pairs[-1].cells, "chat/c64", "output_throughput")
    assert cell.verdict is CellVerdict.FASTER
    assert cell.noise is not None
    assert cell.noise.spread == pytest.approx(0.004, rel=1e-3)
    assert cell.noise.freedom == 6


def test_the_more_cells_the_surer_each_must_be():
    pair = [1000, 1008, 1016], [970, 978, 986]
    alone = compare(measured(TUNED, *pair[0]), measured(TUNED, *pair[1]))
    assert at(alone.cells, "chat/c64", "output_throughput").verdict is CellVerdict.FASTER
    base = measured(trial(baseline=True), *pair[1])
    others = [measured(trial(cuda_graph_max_bs=n), 980, 971, 990) for n in range(30)]
    many = compare_with_baseline(stored(base, measured(TUNED, *pair[0]), *others))
    assert at(many.pairs[0].cells, "chat/c64", "output_throughput").verdict is not (
        CellVerdict.FASTER
    )


def test_two_trials_whatever_their_configuration(tmp_path: Path, monkeypatch):
    for day, speeds in enumerate(((1000, 1001), (1100, 1101))):
        folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT + day)
        save_trial(folder, measured(trial(cuda_graph_max_bs=day), *speeds))
        save_trial(folder, night()[3])
    settings = tmp_path / "settings.toml"
    settings.write_text(f'store = "{tmp_path}"\n')
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", str(settings))
    old, new = (
        f"{sweep_id}/{trial(cuda_graph_max_bs=day).trial_id[:6]}"
        for day, sweep_id in enumerate(reversed(sweep_ids(tmp_path)))
    )

    content, status = compared_json(old, new, force=False)
    (pair,) = content["pairs"]
    slower = [c for c in pair["cells"] if c["verdict"] == "slower"]
    assert {c["cell"] for c in slower if c["metric"] == "output_throughput"} == {
        "chat/c1",
        "chat/c16",
        "chat/c64",
    }
    assert status == ExitStatus.NOTHING_FEASIBLE

    refused = night()[3].trial.trial_id
    with pytest.raises(InputError, match="incorrect"):
        compared_json(old, f"latest/{refused}", force=False)
    with pytest.raises(InputError, match="no trial 'zz'"):
        compared_json("latest/zz", "latest", force=False)
    with pytest.raises(InputError, match="name two sweeps, or a trial of each"):
        compared_json(old, "latest", force=False)
