"""The queries of the documentation run on a store, and Polars and DuckDB say the same."""

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tasks.results.saving import save_trial
from tasks.results.store import create_sweep
from tests.results import factory

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nights with requests and other axes, in `sweeps` of the working directory."""
    monkeypatch.chdir(tmp_path)
    records = tuple(factory.record(i) for i in range(5))
    for day in (0, 1):
        now = factory.NIGHT + 86_400 * day
        folder = create_sweep(tmp_path / "sweeps", factory.sweep(), now=now)
        axes = {"cuda_graph_max_bs": 64, **({"nccl_channels": 8} if day else {})}
        for speed in (1_200.0, 1_300.0):
            wanted = replace(factory.trial(**axes), trial_id=f"{speed:g}")
            result = factory.measured(wanted, speed, speed + 4)
            levels = tuple(replace(level, records=records) for level in result.levels)
            save_trial(folder, replace(result, levels=levels))


def of_polars(code: str) -> pl.DataFrame:
    names: dict[str, object] = {}
    exec(code, names)
    [found] = [value for value in names.values() if isinstance(value, pl.DataFrame)]
    return found


def test_both_find_the_best_of_each_night():
    mine = of_polars(blocks("python")[0]).sort("sweep_id")
    theirs = duckdb.sql(blocks("sql")[0]).fetchall()
    assert mine.height == len(theirs) == 2
    assert mine["trial_id"].to_list() == ["1300", "1300"]
    assert mine.rows() == [pytest.approx(row) for row in theirs]
    assert [row[2] for row in theirs] == pytest.approx([1_302, 1_302])


def test_both_find_the_gaps_of_the_requests():
    mine = of_polars(blocks("python")[1])
    theirs = duckdb.sql(blocks("sql")[1]).fetchall()
    assert mine.height == len(theirs) == 2 * 2 * 3 * 2
    assert set(mine["p99"].to_list()) == {row[4] for row in theirs} == {10.0}


def test_every_query_of_the_page_is_run_here():
    assert (len(blocks("python")), len(blocks("sql"))) == (2, 2)
