"""Every column is documented, and the page is the one in the repository."""

from pathlib import Path

import pytest

from settings.metric_names import METRIC_NAMES
from tasks.results.columns import page
from tasks.results.schema import GPU, METRICS, REQUESTS, SUMMARY

PAGE = Path(__file__).resolve().parents[2] / "docs" / "columns.md"


def test_the_committed_page_is_current():
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "run `python -m tasks.results.columns docs/columns.md`"


@pytest.mark.parametrize("columns", [REQUESTS, GPU, SUMMARY, METRICS])
def test_names_are_unique_and_meanings_end(columns):
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    assert all(column.meaning.endswith((".", "…")) for column in columns)


def test_numbers_with_a_dimension_have_a_unit():
    for column in METRICS:
        if column.name.endswith(("_ms", "_s", "throughput", "_w", "_j")):
            assert column.unit, column.name


def test_what_a_sweep_file_may_name_is_documented():
    assert set(METRIC_NAMES) <= {column.name for column in METRICS}


def test_no_cell_of_the_page_breaks_its_table():
    rows = [line for line in page().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {7}
