"""Files of older layouts are read, newer ones refused, damaged ones named."""

import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tasks.domain.errors import InputError
from tasks.results.export import scan_summary
from tasks.results.folders import SweepFolder
from tasks.results.nights import read_board
from tasks.results.records import SCHEMA_VERSION, Damaged, SweepState
from tasks.results.recount import recount
from tasks.results.saving import save_trial
from tasks.results.schema import METRICS, REQUESTS, SUMMARY, Column, polars_schema
from tasks.results.store import create_sweep, list_sweeps, load_sweep, set_state
from tasks.results.tables import LAYOUT, in_todays_layout, readable, scan_table, write_table
from tests.results import factory
from tests.results.factory import NIGHT

OLD = Path(__file__).parent / "data" / "store-of-layout-1"


@pytest.fixture
def old(tmp_path: Path) -> SweepFolder:
    """A store that the program wrote when its layout was 1."""
    shutil.copytree(OLD, tmp_path / "store")
    return SweepFolder(tmp_path / "store", next(OLD.iterdir()).name)


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """A good requests.parquet."""
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    records = tuple(factory.record(i, chunks=20) for i in range(50))
    result = factory.measured(factory.trial(), levels=(factory.level(1300, records=records),))
    save_trial(folder, result)
    return folder.requests(result.trial.trial_id)


def test_an_older_store_is_read_whole(old: SweepFolder):
    stored = load_sweep(old.store, "latest")
    assert stored.record.schema_version == 1
    assert stored.record.imported_from == ""
    assert [len(result.levels) for result in stored.trials] == [6, 6]
    assert stored.warnings == ()


def test_an_older_summary_has_todays_columns(old: SweepFolder):
    scan = scan_summary(old.store)
    rows = scan.rows.collect()
    assert scan.warnings == ()
    assert set(polars_schema((*SUMMARY, *METRICS))) <= set(rows.columns)
    assert rows["imported_from"].null_count() == rows.height == 12
    assert rows["axis_cuda_graph_max_bs"].unique().sort().to_list() == [64, 128]


def test_an_older_store_has_its_place_among_the_nights(old: SweepFolder):
    nights = list_sweeps(old.store).sweeps
    board = read_board(old.store, nights, ["output_throughput"])
    assert board.warnings == ()
    assert board.values.shape == (1, 6)


def test_resuming_an_older_sweep_brings_its_files_up_to_date(old: SweepFolder):
    first = load_sweep(old.store, "latest").trials[0]
    records = tuple(factory.record(i) for i in range(3))
    added = factory.level(1_200, repeat=3, records=records)

    save_trial(old, replace(first, levels=(*first.levels, added)))
    set_state(old, SweepState.COMPLETED, now=NIGHT)

    path = old.requests(first.trial.trial_id)
    assert pl.read_parquet_metadata(path)[LAYOUT] == str(SCHEMA_VERSION)
    assert pl.read_parquet(path)["repeat"].to_list() == [1] * 5 + [3] * 3
    assert load_sweep(old.store, "latest").record.schema_version == SCHEMA_VERSION


def test_a_newer_sweep_is_refused_in_one_line(old: SweepFolder):
    path = old.record
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    with pytest.raises(InputError) as caught:
        load_sweep(old.store, "latest")
    said = str(caught.value)
    assert "layout 99" in said
    assert "update it" in said
    assert "\n" not in said
    assert "layout 99" in list_sweeps(old.store).warnings[0]


def test_a_newer_table_is_refused(requests: Path):
    frame = pl.read_parquet(requests)
    frame.write_parquet(requests, metadata={LAYOUT: str(SCHEMA_VERSION + 1)})
    with pytest.raises(Damaged, match="written by a newer sglang-sweep"):
        scan_table(requests, REQUESTS)


def test_a_renamed_column_reads_under_its_name_of_today():
    columns = (Column("ttft_ns", "Int64", "ns", "", once=("first_ns", "text_ns")),)
    of_old = pl.LazyFrame({"text_ns": [1, 2], "other": ["a", "b"]})
    assert in_todays_layout(of_old, columns).collect().to_dict(as_series=False) == {
        "ttft_ns": [1, 2],
        "other": ["a", "b"],
    }
    both = pl.LazyFrame({"text_ns": [1], "ttft_ns": [7]})
    assert in_todays_layout(both, columns).collect()["ttft_ns"].to_list() == [7]


def test_a_missing_column_is_null_and_of_its_type(requests: Path):
    pl.read_parquet(requests).drop("verify_steps", "http_status").write_parquet(requests)
    rows = scan_table(requests, REQUESTS).collect()
    assert rows.schema == pl.Schema(polars_schema(REQUESTS))
    assert rows["verify_steps"].null_count() == 50


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00garbage" * 200)


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(4, len(content) // 2):
        content[at] ^= 0x5A
    path.write_bytes(bytes(content))


def _column_lost(path: Path) -> None:
    pl.read_parquet(path).drop("level").write_parquet(path)


def _other_type(path: Path) -> None:
    pl.read_parquet(path).with_columns(pl.col("sent_ns").cast(pl.String)).write_parquet(path)


DAMAGE = {
    _cut: "",
    _empty: "",
    _garbage: "",
    _flipped: "",
    _column_lost: "no column level: not one of our files",
    _other_type: "column sent_ns is String, not Int64",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_each_kind_of_damage_is_named_and_the_others_are_read(requests: Path, damage):
    good = requests.with_name("good.parquet")
    shutil.copy(requests, good)
    damage(requests)

    bad, fine = recount([requests, good])

    assert bad.runs == ()
    assert bad.fault.startswith(f"{requests}: damaged, left out: ")
    assert DAMAGE[damage] in bad.fault
    assert "\n" not in bad.fault
    assert [run.metrics["completed"] for run in fine.runs] == [49]


@pytest.mark.parametrize("damage", [_cut, _empty, _garbage, _flipped])
def test_a_damaged_summary_is_named_and_skipped(old: SweepFolder, damage):
    other = create_sweep(old.store, factory.sweep(), now=NIGHT + 86_400)
    save_trial(other, factory.night()[0])
    damage(old.summary)

    nights = tuple(reversed(list_sweeps(old.store).sweeps))
    board = read_board(old.store, nights, ["output_throughput"])

    assert len(board.warnings) == 1
    assert str(old.summary) in board.warnings[0]
    assert board.values.shape == (2, 3)


def test_requests_that_cant_be_added_to_are_put_aside(old: SweepFolder):
    first = load_sweep(old.store, "latest").trials[0]
    path = old.requests(first.trial.trial_id)
    _cut(path)
    torn = path.read_bytes()

    level = factory.level(1_200, repeat=3, records=(factory.record(0),))
    save_trial(old, replace(first, levels=(*first.levels, level)))

    assert pl.read_parquet(path).height == 1
    assert path.with_name("requests.parquet.damaged").read_bytes() == torn
    assert "put aside" in load_sweep(old.store, "latest").warnings[0]


def test_a_panic_of_polars_is_damage():
    with pytest.raises(Damaged, match=r"^boom$"), readable():
        raise pl.exceptions.PanicException("boom\nat line 3")


def test_a_table_tells_its_layout(tmp_path: Path):
    write_table(pl.LazyFrame({"a": [1]}), tmp_path / "t.parquet")
    assert pl.read_parquet_metadata(tmp_path / "t.parquet")[LAYOUT] == str(SCHEMA_VERSION)


def test_a_layout_that_is_no_number_is_damage(requests: Path):
    pl.read_parquet(requests).write_parquet(requests, metadata={LAYOUT: "two"})
    with pytest.raises(Damaged, match="layout 'two' is no number"):
        scan_table(requests, REQUESTS)


def test_todays_columns_come_first_and_an_untyped_one_gets_its_type():
    columns = (Column("a", "Int64", "1", ""), Column("b", "Float64", "1", ""))
    found = in_todays_layout(pl.LazyFrame({"more": [1], "b": [None], "a": [2]}), columns)
    assert found.collect().schema == pl.Schema(
        {"a": pl.Int64(), "b": pl.Float64(), "more": pl.Int64()}
    )


def test_an_error_without_a_word_is_named_by_its_kind():
    with pytest.raises(Damaged, match=r"^PermissionError$"), readable():
        raise PermissionError


def test_what_polars_says_of_a_table_that_it_cant_write_is_an_os_error(tmp_path: Path):
    def refuse(frame: pl.DataFrame) -> pl.DataFrame:
        raise pl.exceptions.ComputeError("no room")

    frame = pl.LazyFrame({"a": [1]}).map_batches(refuse)
    with pytest.raises(OSError, match="no room"):
        write_table(frame, tmp_path / "t.parquet")
