"""The report for a pull request: the same facts, and nothing of it taken for markup."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from flows.cli import run_command
from tasks.domain.configuration import Spell
from tasks.results.markdown import MOST_ROWS, report_markdown
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.report_json import report_json
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep
from tasks.results.terminal import print_report
from tasks.results.view import view
from tests.results import factory
from tests.results.factory import NIGHT, attempt, measured, night, trial


def stored(*trials) -> StoredSweep:
    ended = NIGHT + 7200
    record = SweepRecord("id", factory.sweep(), SweepState.COMPLETED, NIGHT, ended, ended)
    return StoredSweep(replace(record, stacks=(factory.stack_report(),)), trials)


def written(*trials) -> str:
    return report_markdown(view(stored(*trials)))


def test_it_has_the_decision_with_its_interval_and_the_command():
    said = written(*night())
    assert said.startswith("### kimi-k2.5-nightly on blackwell: completed\n")
    assert "**cuda_graph_max_bs=128 speculative_steps=0**: 1,308 ± 38 output tok/s" in said
    assert "+9.0 % over the baseline (+6.9 … +11.2 %)" in said
    assert "Truly the best of 3 with a probability of" in said
    assert "```sh\nNCCL_PROTO=LL " in said
    assert "to be chosen: p99 TTFT ms at most 2,000 at chat/c64" in said
    assert "- 1 × **cudnn-conv3d-check**: SGLang refuses torch 2.9.1" in said
    assert "- cuda_graph_max_bs 64 → 128: +9.0 %" in said


def rows(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("| ")]


def test_every_row_has_the_cells_of_the_head():
    lines = rows(written(*night()))
    assert len(lines) == 2 + 6
    assert len({line.count(" |") for line in lines}) == 1
    assert lines[2].startswith("| ★ | 128 | 0 | measured | 1,308 ± 38 |")


def test_the_baseline_is_among_the_rows_wherever_it_stands():
    trials = [measured(trial(cuda_graph_max_bs=n), 1000.0 + n) for n in range(20)]
    slow = measured(trial(baseline=True, cuda_graph_max_bs=99), 10.0)
    said = written(*trials, slow)
    lines = rows(said)
    assert len(lines) == 2 + MOST_ROWS
    assert lines[-1].endswith("| baseline |")
    assert "11 more trials" in said


def test_what_a_person_or_a_server_wrote_is_text():
    evil = "a|b\n<script>*x*</script> [l](u) `c` #1 _i_"
    failed = replace(factory.cudnn_failure(), explanation=evil)
    wanted = trial(**{"args.x": evil})
    bad = measured(wanted, 9.0, attempts=(attempt(wanted, ready_s=None, diagnosis=failed),))
    said = written(bad, measured(trial(**{"args.x": "b"}), 8.0))
    assert "<script>" not in said.replace("\\<script", "")
    assert r"a\|b \<script\>\*x\*\</script\> \[l\](u) \`c\` \#1 \_i\_" in said
    assert len({line.replace(r"\|", "").count(" |") for line in rows(said)}) == 1


def test_a_night_without_a_best_says_so():
    assert "**No configuration is measured, correct and within" in written(*night()[3:])
    assert rows(written()) == []


def test_the_hours_are_told_in_a_line_in_markdown_and_in_the_terminal():
    _, better, *_ = night()
    spells = (Spell("weights", NIGHT, 1800), Spell("load", NIGHT + 1800, 3600))
    told = replace(better, attempts=(attempt(better.trial, spells=spells),))
    page = view(stored(told))
    line = "GPU hours: 50 % measuring, 25 % waiting, 25 % loading"
    assert report_markdown(page).endswith(f"\n{line}.\n")
    out = StringIO()
    print_report(Console(file=out, width=100), page)
    assert f"\n{line}\n" in out.getvalue()


def test_machines_get_the_front_the_effects_and_the_hours(tmp_path, monkeypatch, capsys):
    base, better, *rest = night()
    levels = tuple(
        replace(each, metrics={**each.metrics, "median_tpot_ms": 20.0}) for each in better.levels
    )
    found = report_json(stored(base, replace(better, levels=levels), *rest))
    (point,) = found["front"]
    assert (point["trial_id"], point["cell"]) == (better.trial.trial_id, "chat/c64")
    assert point["tokens_per_s_per_user"] == 50
    first = found["effects"]["main"][0]
    assert (first["axis"], first["value"], first["reference"]) == ("cuda_graph_max_bs", 128, 64)
    assert first["gain"]["ratio"] > 1
    total_s, gpus = found["hours"].pop("total_s"), found["hours"].pop("gpus")
    assert (sum(found["hours"].values()), gpus) == (pytest.approx(total_s), 8)
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    save_trial(folder, base)
    monkeypatch.setenv("SGLANG_SWEEP_STORE", str(tmp_path))
    assert run_command(["report", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### kimi-k2.5-nightly on blackwell: running")
