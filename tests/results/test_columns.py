"""Every column is documented, and the page is the one in the repository."""

from pathlib import Path

import pytest

from settings.metric_names import METRIC_NAMES
from tasks.results.columns import page
from tasks.results.schema import GPU, METRICS, REQUESTS, SUMMARY, Column

PAGE = Path(__file__).resolve().parents[2] / "docs" / "columns.md"


def test_the_committed_page_is_current():
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "run `python -m tasks.results.columns docs/columns.md`"


@pytest.mark.parametrize("columns", [REQUESTS, GPU, SUMMARY, METRICS])
def test_names_are_unique_and_meanings_end(columns):
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    assert all(column.meaning.endswith((".", "…")) for column in columns)


TABLES = {"requests": REQUESTS, "gpu": GPU, "summary": SUMMARY, "metrics": METRICS}
EVERY = [(table, column) for table, columns in TABLES.items() for column in columns]


@pytest.mark.parametrize(("table", "column"), EVERY, ids=lambda each: getattr(each, "name", each))
def test_each_column_has_unit_formula_and_source(table: str, column: Column):
    """What has no dimension is in units of 1; only text and yes-or-no have none."""
    number = column.kind in ("Int64", "Float64", "List(Int64)")
    assert bool(column.unit) is number
    assert column.formula
    assert "`" not in column.formula
    assert column.source in ("sglang-sweep", "sglang.bench_serving")


def test_names_tell_their_unit():
    endings = {"_ms": "ms", "_ns": "ns", "_mib": "MiB", "_mhz": "MHz", "_w": "W", "_j": "J"}
    for _, column in EVERY:
        for ending, unit in endings.items():
            if column.name.endswith(ending):
                assert column.unit == unit, column.name
        if column.name.endswith("throughput"):
            assert column.unit in ("tokens/s", "1/s"), column.name


def test_what_a_sweep_file_may_name_is_documented():
    assert set(METRIC_NAMES) <= {column.name for column in METRICS}


def test_no_cell_of_the_page_breaks_its_table():
    rows = [line for line in page().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {7}
