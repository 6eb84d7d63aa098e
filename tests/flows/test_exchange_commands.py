"""`export`, `import` and `recount` as a person meets them."""

import os
from pathlib import Path

import pytest

from flows.cli import run_command
from tasks.domain.measurement import LevelResult
from tasks.load.metrics import compute_metrics
from tasks.results.folders import SweepFolder
from tasks.results.records import SweepState
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep, set_state
from tests.results import factory

RECORDED = Path(__file__).parents[1] / "results" / "data" / "bench-serving-0.5.23.jsonl"


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A sweep with requests, in a store of the working directory."""
    for name in [name for name in os.environ if name.upper().startswith("SGLANG_SWEEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = create_sweep(tmp_path / "sweeps", factory.sweep(), now=factory.NIGHT)
    save_trial(folder, factory.measured(factory.trial(baseline=True), levels=(_level(),)))
    return folder.sweep_id


def _level(**changes: float) -> LevelResult:
    records = tuple(factory.record(i) for i in range(64))
    metrics = compute_metrics(records, 64)
    level = factory.level(1_200, records=records)
    return LevelResult("chat", 64, None, 1, {**metrics, **changes}, level.verdict, records)


def test_out_and_in_again_and_compared(night: str, capsys: pytest.CaptureFixture[str]):
    assert run_command(["export", "latest", "--to", "out.jsonl"]) == 0
    assert "1 run of" in capsys.readouterr().out
    assert run_command(["import", "out.jsonl", "--workload", "chat"]) == 0
    said = capsys.readouterr().out
    assert "1 run as 1 trial: " in said
    assert "every run is suspect" in said
    words = ["compare", night, "latest", "--force"]
    assert run_command(words) == 0
    assert "imported from sglang.bench_serving" in capsys.readouterr().out


def test_what_is_no_result_is_refused_in_a_line(night: str, capsys: pytest.CaptureFixture[str]):
    Path("notes.txt").write_text("hello")
    assert run_command(["import", "notes.txt"]) == 2
    said = capsys.readouterr().err
    assert "notes.txt: no JSON" in said
    assert said.count("\n") == 1


def test_a_foreign_file_is_imported(night: str, capsys: pytest.CaptureFixture[str]):
    assert run_command(["import", str(RECORDED), "--name", "theirs"]) == 0
    assert "random-ids-rate/4/s" in capsys.readouterr().out
    assert run_command(["report", "latest", "--json"]) == 0
    assert '"verdict": "suspect"' in capsys.readouterr().out


def test_a_recount_agrees_or_says_where_not(night: str, capsys: pytest.CaptureFixture[str]):
    assert run_command(["recount", night]) == 0
    assert "1 run counted again from 63 requests; no figure differs" in capsys.readouterr().out

    folder = create_sweep(Path("sweeps"), factory.sweep(), now=factory.NIGHT + 60)
    level = _level(mean_ttft_ms=1.0)
    save_trial(folder, factory.measured(factory.trial(), levels=(level,)))
    assert run_command(["recount", folder.sweep_id]) == 1
    said = capsys.readouterr().out
    assert "chat c64 1: mean_ttft_ms was 1, is 200" in said
    assert "1 figure differs" in said


def test_a_metric_that_is_newer_than_the_sweep_is_no_difference(
    night: str, capsys: pytest.CaptureFixture[str]
):
    folder = create_sweep(Path("sweeps"), factory.sweep(), now=factory.NIGHT + 60)
    level = _level()
    known = {name: value for name, value in level.metrics.items() if name != "max_icl_ms"}
    level = LevelResult("chat", 64, None, 1, known, level.verdict, level.records)
    save_trial(folder, factory.measured(factory.trial(), levels=(level,)))
    assert run_command(["recount", folder.sweep_id]) == 0
    said = capsys.readouterr().out
    assert "not known when it was measured: max_icl_ms" in said
    assert "no figure differs" in said


def test_nothing_to_import_is_said(night: str, capsys: pytest.CaptureFixture[str]):
    assert run_command(["import"]) == 2
    assert capsys.readouterr().err.strip()


def test_tables_are_published_once_the_sweep_is_over(
    night: str, capsys: pytest.CaptureFixture[str]
):
    words = ["export", night, "--format", "parquet", "--to", "there"]
    assert run_command(words) == 2
    assert "still runs" in capsys.readouterr().err
    set_state(SweepFolder(Path("sweeps"), night), SweepState.COMPLETED, now=factory.NIGHT + 9)
    assert run_command(words) == 0
    assert f"2 tables written to there/{night}" in capsys.readouterr().out
    assert (Path("there") / night / "summary.parquet").exists()


def test_a_recount_names_what_it_cant_read(night: str, capsys: pytest.CaptureFixture[str]):
    path = next(Path("sweeps").rglob("requests.parquet"))
    path.write_bytes(b"")
    assert run_command(["recount"]) == 0
    assert "requests.parquet: damaged, left out" in capsys.readouterr().out.replace("\n", "")
    path.unlink()
    assert run_command(["recount"]) == 0
    assert "no such file" in capsys.readouterr().out.replace("\n", " ")
