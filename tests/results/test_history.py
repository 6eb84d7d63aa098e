"""Nights of one name are compared with each other, whatever else is in the store."""

from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from tasks.domain.configuration import TrialResult
from tasks.results.export import scan_summary
from tasks.results.folders import SweepFolder
from tasks.results.history import history
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep
from tasks.results.terminal import print_history
from tests.results import factory
from tests.results.factory import NIGHT, measured, trial

BASE = trial(baseline=True, cuda_graph_max_bs=64)
TUNED = trial(cuda_graph_max_bs=128)


def run(store: Path, day: int, *trials: TrialResult, **changes: object) -> SweepFolder:
    folder = create_sweep(store, factory.sweep(**changes), now=NIGHT + day * 86_400)
    for result in trials:
        save_trial(folder, result)
    return folder


def test_each_night_against_the_one_before(tmp_path: Path):
    run(tmp_path, 0, measured(BASE, 1000, 1000), measured(TUNED, 1100, 1100))
    run(tmp_path, 1, measured(BASE, 1000), name="another")
    run(tmp_path, 2, measured(BASE, 970, 970), measured(TUNED, 1067, 1067))
    run(tmp_path, 3)

    nights = history(tmp_path, "kimi-k2.5-nightly").nights

    assert [night.best_label for night in nights] == ["cuda_graph_max_bs=128"] * 2 + [""]
    assert nights[0].gain is not None
    assert nights[0].gain.value == pytest.approx(1.1)
    assert nights[0].change is None
    assert nights[1].change is not None
    assert nights[1].change.value == pytest.approx(0.97)
    assert nights[1].baseline_change is not None
    assert nights[1].baseline_change.value == pytest.approx(0.97)
    assert (nights[2].best, nights[2].change) == (None, None)
    assert [n.record.sweep.name for n in history(tmp_path).nights][1] == "another"
    assert len(history(tmp_path, last=2).nights) == 2


def test_another_objective_is_not_compared(tmp_path: Path):
    run(tmp_path, 0, measured(BASE, 1000))
    run(tmp_path, 1, measured(BASE, 900), objective={"metric": "median_itl_ms", "concurrency": 1})
    assert history(tmp_path).nights[1].change is None


def test_the_table_names_what_could_not_be_read(tmp_path: Path):
    run(tmp_path, 0, measured(BASE, 1000))
    broken = run(tmp_path, 1)
    broken.record.write_text("{")
    console = Console(file=StringIO(), width=120)
    print_history(console, history(tmp_path))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2026-11-30 02:00" in said
    assert "1,000" in said
    assert broken.sweep_id in said


def test_an_empty_store_has_no_history(tmp_path: Path):
    assert history(tmp_path / "none").nights == ()


def test_summaries_of_different_sweeps_stand_in_one_table(tmp_path: Path):
    run(tmp_path, 0, measured(BASE, 1000, 1001))
    run(tmp_path, 1, measured(trial(**{"args.attention_backend": "triton"}), 900))
    run(tmp_path, 2, measured(trial(cuda_graph_max_bs="auto"), 900))
    run(tmp_path, 3)
    damaged = run(tmp_path, 4, measured(BASE, 1000))
    damaged.summary.write_bytes(b"PAR1 and no more")

    scan = scan_summary(tmp_path)
    rows = scan.rows.filter(pl.col("level") == "c64").collect()

    assert rows["axis_cuda_graph_max_bs"].to_list() == ["64", "64", None, "auto"]
    assert rows["axis_args.attention_backend"].to_list() == [None, None, "triton", None]
    assert rows["output_throughput"].to_list() == [1000, 1001, 900, 900]
    assert len(scan.warnings) == 1
    assert damaged.sweep_id in scan.warnings[0]


def test_an_empty_store_has_an_empty_table(tmp_path: Path):
    assert scan_summary(tmp_path).rows.collect().is_empty()
