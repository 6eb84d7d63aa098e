"""The store gives back what it was given, and names what it can't read."""

import os
import resource
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import polars as pl
import pytest

from settings.metric_names import METRIC_NAMES
from tasks.domain.errors import ExitStatus, InputError
from tasks.domain.measurement import RequestRecord
from tasks.results.files import StoreError, write_whole
from tasks.results.folders import SweepFolder, new_sweep_id
from tasks.results.records import SweepState, dump_trial
from tasks.results.saving import TrialStore, save_trial, without_records
from tasks.results.schema import METRICS, REQUESTS, SUMMARY
from tasks.results.store import (
    create_sweep,
    find_sweep,
    list_sweeps,
    load_sweep,
    load_sweep_record,
    record_stack,
    set_state,
    sweep_ids,
)
from tests.results import factory
from tests.results.factory import NIGHT


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return create_sweep(tmp_path, factory.sweep(), now=NIGHT)


def test_a_sweep_comes_back_as_it_was_saved(folder: SweepFolder):
    for result in factory.night():
        save_trial(folder, result)

    stored = load_sweep(folder.store, folder.sweep_id)

    assert stored.sweep == factory.sweep()
    assert stored.record.state is SweepState.RUNNING
    assert stored.record.versions.keys() == {"sglang-sweep", "python"}
    assert {t.trial.trial_id: t for t in stored.trials} == {
        t.trial.trial_id: t for t in factory.night()
    }
    assert stored.warnings == ()


def test_durations_are_kept_exactly(tmp_path: Path):
    asked = factory.sweep(timeouts={"ready": 90.25})
    folder = create_sweep(tmp_path, asked, now=NIGHT)
    assert load_sweep_record(folder).sweep.timeouts.ready == 90.25


def test_ids_sort_by_time_and_differ_within_a_second(tmp_path: Path):
    asked = factory.sweep()
    made = [create_sweep(tmp_path, asked, now=NIGHT + day).sweep_id for day in (0, 0, 86_400)]
    assert made[0].startswith("20261130T020000Z-kimi-k2.5-nightly-")
    assert len(set(made)) == 3
    assert sweep_ids(tmp_path)[0] == made[2]


def test_a_long_name_stays_a_valid_folder_name():
    assert len(new_sweep_id("x" * 300, NIGHT, "ab12")) < 120


def test_paths_are_those_of_the_layout():
    folder = SweepFolder(Path("/store"), "s")
    assert [
        str(path)
        for path in (
            folder.record,
            folder.summary,
            folder.trial_record("t"),
            folder.requests("t"),
            folder.attempt("t", 2),
        )
    ] == [
        "/store/s/sweep.json",
        "/store/s/summary.parquet",
        "/store/s/trials/t/trial.json",
        "/store/s/trials/t/requests.parquet",
        "/store/s/trials/t/attempt-2",
    ]


def test_a_state_with_its_end(folder: SweepFolder):
    set_state(folder, SweepState.CANCELLED, now=NIGHT + 60, reason="by hand")
    record = load_sweep_record(folder)
    assert (record.state, record.ended_at, record.reason) == ("cancelled", NIGHT + 60, "by hand")

    set_state(folder, SweepState.RUNNING, now=NIGHT + 90)
    assert load_sweep_record(folder).ended_at is None


def test_stacks_are_kept_once_each(folder: SweepFolder):
    for fingerprint in ("a", "b", "a"):
        record_stack(folder, factory.stack_report(fingerprint), now=NIGHT)
    stacks = load_sweep_record(folder).stacks
    assert [s.fingerprint for s in stacks] == ["b", "a"]
    assert stacks[0] == factory.stack_report("b")


def test_requests_of_later_repeats_are_added(folder: SweepFolder):
    wanted = factory.trial(cuda_graph_max_bs=128)
    first = factory.level(1300, records=tuple(factory.record(i) for i in range(3)))
    second = factory.level(1310, repeat=2, records=tuple(factory.record(i) for i in range(2)))

    saved = save_trial(folder, factory.measured(wanted, 1300, levels=(first,)))
    assert saved.levels[0].records == ()
    save_trial(folder, replace(saved, levels=(*saved.levels, second)))

    rows = pl.read_parquet(folder.requests(wanted.trial_id))
    assert rows["repeat"].to_list() == [1, 1, 1, 2, 2]
    assert rows["arrival_ns"].to_list()[4] == list(factory.record(1).arrival_ns)
    assert rows["cumulative_tokens"].to_list()[4] == [1, 2, 3, 4]
    assert rows["outcome"].unique().to_list() == ["finished"]
    assert rows["warmup"].to_list() == [True, False, False, True, False]


def test_chunks_may_be_arrays(folder: SweepFolder):
    wanted = factory.trial(cuda_graph_max_bs=128)
    several = replace(factory.record(0), arrival_ns=array("q", [5, 9]), cumulative_tokens=(1, 2))
    records = (several, factory.record(1, chunks=0))
    save_trial(
        folder, factory.measured(wanted, 1300, levels=(factory.level(1300, records=records),))
    )
    rows = pl.read_parquet(folder.requests(wanted.trial_id))
    assert rows["arrival_ns"].to_list() == [[5, 9], []]
    assert rows["cumulative_tokens"].to_list() == [[1, 2], []]


def test_a_repeat_that_is_measured_again_replaces_its_requests(folder: SweepFolder):
    wanted = factory.trial(cuda_graph_max_bs=128)
    for count in (3, 2):
        level = factory.level(1300, records=tuple(factory.record(i) for i in range(count)))
        save_trial(folder, factory.measured(wanted, 1300, levels=(level,)))
    assert pl.read_parquet(folder.requests(wanted.trial_id)).height == 2


def test_the_summary_has_a_row_for_each_run(folder: SweepFolder):
    for result in factory.night():
        save_trial(folder, result)
    rows = pl.read_parquet(folder.summary)

    assert rows.height == 3 * 3 * 2
    base = rows.filter(pl.col("baseline"), pl.col("level") == "c64", pl.col("repeat") == 2)
    row = base.row(0, named=True)
    assert row["output_throughput"] == 1196.0
    assert row["axis_cuda_graph_max_bs"] == 64
    assert row["max_concurrency"] == 64
    assert row["concurrency"] is None  # bench_serving's measured concurrency: not written here
    assert row["remedies"] == ["skip SGLang's cuDNN version check"]
    assert (row["altered"], row["attempt"], row["ready_s"]) == (False, 3, 212.5)
    assert row["fingerprint"] == factory.FINGERPRINT


def test_one_store_for_a_whole_night_writes_the_same_summary(folder: SweepFolder):
    night = factory.night()
    trials = TrialStore(folder)
    for result in (*night, night[1]):
        trials.save(result)
    found = pl.read_parquet(folder.summary)
    save_trial(folder, night[0])
    again = pl.read_parquet(folder.summary)
    assert found.columns == again.columns
    assert found.sort("started_at", "level").equals(again.sort("started_at", "level"))


def test_a_trial_stored_again_takes_the_place_of_what_it_was(folder: SweepFolder):
    trials, wanted = TrialStore(folder), factory.trial(cuda_graph_max_bs=128)
    for throughputs in ((1300.0,), (1300.0, 1310.0)):
        trials.save(factory.measured(wanted, *throughputs))
    rows = pl.read_parquet(folder.summary).filter(pl.col("level") == "c64")
    assert rows["output_throughput"].to_list() == [1300, 1310]


def test_the_summary_takes_in_what_a_killed_run_had_stored(folder: SweepFolder):
    """Killed after trial.json: the next run's first trial brings its rows, and is read once."""
    lost, first, second = factory.night()[:3]
    write_whole(folder.trial_record(lost.trial.trial_id), dump_trial(lost))
    trials = TrialStore(folder)
    trials.save(first)
    ids = {lost.trial.trial_id, first.trial.trial_id}
    assert set(pl.read_parquet(folder.summary)["trial_id"]) == ids

    folder.trial_record(lost.trial.trial_id).unlink()
    trials.save(second)
    assert set(pl.read_parquet(folder.summary)["trial_id"]) == ids | {second.trial.trial_id}


def test_what_could_not_be_written_is_in_the_next_summary(folder: SweepFolder):
    first, second = factory.night()[:2]
    trials = TrialStore(folder)
    in_the_way = folder.summary / "something"
    in_the_way.mkdir(parents=True)
    with pytest.raises(StoreError, match="not written"):
        trials.save(first)
    in_the_way.rmdir()
    folder.summary.rmdir()
    trials.save(second)
    assert pl.read_parquet(folder.summary)["trial_id"].n_unique() == 2


def test_axes_of_several_types_become_text(folder: SweepFolder):
    for value in (8, "auto", None, True, [1, 2]):
        wanted = replace(factory.trial(), trial_id=f"t{value}", axes={"args.x": value})
        save_trial(folder, factory.measured(wanted, 1000))
    values = pl.read_parquet(folder.summary)["axis_args.x"].unique().to_list()
    assert set(values) == {"8", "auto", None, "true", "[1, 2]"}


def test_a_damaged_trial_is_named_and_the_others_are_read(folder: SweepFolder):
    first, second, *_ = factory.night()
    for result in (first, second):
        save_trial(folder, result)
    path = folder.trial_record(first.trial.trial_id)
    path.write_bytes(path.read_bytes()[:200])

    stored = load_sweep(folder.store, "latest")

    assert stored.trials == (second,)
    assert len(stored.warnings) == 1
    assert str(path) in stored.warnings[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "no JSON object"),
        (b'{"schema_version": 99}', "newer sglang-sweep (layout 99"),
        (b'{"schema_version": 1, "verdict": "measured"}', "trial: Field required"),
        (b"\xff\xfe", "no JSON object"),
        (b"", "no JSON object"),
    ],
)
def test_a_file_with_another_content_is_named(folder: SweepFolder, content: bytes, said: str):
    write_whole(folder.trial_record("x"), content)
    assert said in load_sweep(folder.store, "latest").warnings[0]


def test_what_an_interruption_left_is_named_once_the_sweep_has_ended(folder: SweepFolder):
    folder.attempt("abc", 1).mkdir(parents=True)
    (folder.path / "summary.parquet.partial").write_bytes(b"PAR1")
    assert load_sweep(folder.store, "latest").warnings == ()

    set_state(folder, SweepState.CRASHED, now=NIGHT + 5)
    said = "\n".join(load_sweep(folder.store, "latest").warnings)
    assert "summary.parquet.partial: left by a write" in said
    assert "abc: no trial.json" in said


def test_a_sweep_is_found_by_the_beginning_of_its_id(tmp_path: Path):
    asked = factory.sweep()
    old = create_sweep(tmp_path, asked, now=NIGHT)
    new = create_sweep(tmp_path, asked, now=NIGHT + 86_400)
    assert find_sweep(tmp_path, "20261130") == old
    assert find_sweep(tmp_path, "latest") == new
    assert find_sweep(tmp_path, new.sweep_id) == new


def test_an_unknown_sweep_names_the_nearest(tmp_path: Path):
    with pytest.raises(InputError, match="no sweep in this store"):
        find_sweep(tmp_path, "latest")

    made = create_sweep(tmp_path, factory.sweep(), now=NIGHT).sweep_id
    with pytest.raises(InputError, match=f"did you mean '{made}'") as caught:
        find_sweep(tmp_path, made[:-4] + "zzzz")
    assert caught.value.exit_status is ExitStatus.BAD_INPUT
    with pytest.raises(InputError, match=f"the newest is '{made}'"):
        find_sweep(tmp_path, "")

    create_sweep(tmp_path, factory.sweep(), now=NIGHT + 1)
    with pytest.raises(InputError, match="begins several sweeps"):
        find_sweep(tmp_path, "2026")


def test_a_damaged_sweep_is_named_in_the_list(tmp_path: Path):
    good = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    bad = create_sweep(tmp_path, factory.sweep(), now=NIGHT + 1)
    bad.record.write_text("{")
    listing = list_sweeps(tmp_path)
    assert [record.sweep_id for record in listing.sweeps] == [good.sweep_id]
    assert bad.sweep_id in listing.warnings[0]
    with pytest.raises(InputError, match="can't be read"):
        load_sweep(tmp_path, bad.sweep_id)


@contextmanager
def small_files() -> Iterator[None]:
    """Let the system refuse files above 2 KiB, as a full disk does.

    No fixture: the limit would hold while pytest writes its own output, which may be a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_refused_write_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "trial.json"
    write_whole(path, b"old")
    with small_files(), pytest.raises(StoreError, match="file size limit") as caught:
        write_whole(path, b"x" * 100_000)
    assert caught.value.path == path
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["trial.json"]


def test_a_refused_parquet_write_leaves_no_half_trial(folder: SweepFolder):
    wanted = factory.trial(cuda_graph_max_bs=128)
    records = tuple(factory.record(i, chunks=300 + i) for i in range(200))
    result = factory.measured(wanted, 1300, levels=(factory.level(1300, records=records),))
    with small_files(), pytest.raises(StoreError, match=r"requests\.parquet: not written"):
        save_trial(folder, result)
    assert list(folder.trial(wanted.trial_id).iterdir()) == []


def test_a_store_that_is_a_file_is_a_clear_error(tmp_path: Path):
    (tmp_path / "store").write_text("")
    with pytest.raises(StoreError, match="store"):
        create_sweep(tmp_path / "store", factory.sweep(), now=NIGHT)


def test_reading_needs_neither_polars_nor_scipy(folder: SweepFolder):
    save_trial(folder, factory.night()[0])
    program = (
        "import sys\nfrom pathlib import Path\nfrom tasks.results.store import load_sweep\n"
        f"load_sweep(Path({str(folder.store)!r}), 'latest')\n"
        "print(sorted({'polars', 'scipy', 'altair', 'numpy'} & sys.modules.keys()))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


def test_without_records_keeps_the_rest():
    level = factory.level(10, records=(factory.record(0),))
    result = factory.measured(factory.trial(), 10, levels=(level,))
    assert without_records(result).levels[0].metrics == level.metrics


def test_every_field_of_a_request_has_its_column():
    columns = {column.name for column in REQUESTS}
    assert {field.name for field in fields(RequestRecord)} <= columns


def test_every_metric_that_a_sweep_file_may_name_is_documented():
    documented = {column.name for column in METRICS}
    assert set(METRIC_NAMES) <= documented
    assert documented.isdisjoint({column.name for column in SUMMARY})
