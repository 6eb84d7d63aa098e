"""What other tools write is read, what they read is written, and neither passes for the other."""

import json
import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tasks.domain.configuration import TrialVerdict
from tasks.domain.errors import InputError
from tasks.domain.measurement import Validity
from tasks.results.comparison import CellVerdict, UnlikeRuns, compare_sweeps
from tasks.results.exchange.read import import_runs, read_paths
from tasks.results.exchange.write import Format, export
from tasks.results.folders import SweepFolder
from tasks.results.nights import read_board
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep, load_sweep
from tests.results import factory
from tests.results.factory import NIGHT

DATA = Path(__file__).parent / "data"
RECORDED = {version: DATA / f"bench-serving-{version}.jsonl" for version in ("0.5.23", "0.5.9")}
"""Written by the real `sglang.bench_serving` against the real SGLang on a CPU."""

VLLM = {
    "date": "20261129-101112",
    "endpoint_type": "openai",
    "backend": "openai",
    "label": None,
    "model_id": "/models/tiny",
    "tokenizer_id": "/models/tiny",
    "num_prompts": 128,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 16,
    "duration": 10.5,
    "completed": 127,
    "failed": 1,
    "total_input_tokens": 1000,
    "total_output_tokens": 2100,
    "request_throughput": 12.1,
    "request_goodput": None,
    "output_throughput": 200.0,
    "total_token_throughput": 295.2,
    "max_output_tokens_per_s": 250.0,
    "max_concurrent_requests": 17,
    "mean_ttft_ms": 30.0,
    "median_ttft_ms": 28.0,
    "std_ttft_ms": 4.0,
    "p99_ttft_ms": 44.0,
    "mean_e2el_ms": 800.0,
    "median_e2el_ms": 790.0,
    "std_e2el_ms": 12.0,
    "p99_e2el_ms": 850.0,
}
"""The keys and types of vLLM's `benchmarks/serve.py`."""


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    """A night with requests, of a store."""
    folder = create_sweep(tmp_path / "store", factory.sweep(), now=NIGHT)
    for result in factory.night():
        levels = tuple(replace(level, records=_records()) for level in result.levels)
        save_trial(folder, replace(result, levels=levels))
    return folder


def _records():
    return tuple(factory.record(i) for i in range(3))


def exported(folder: SweepFolder, to: Format, target: Path, **options: bool) -> Path:
    export(load_sweep(folder.store, "latest"), folder, to, target, **options)
    return target


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bench_serving_finds_its_keys_and_their_types(folder: SweepFolder, tmp_path: Path):
    written = lines_of(exported(folder, "bench-serving", tmp_path / "out.jsonl"))
    assert len(written) == 18
    for recorded in map(lines_of, RECORDED.values()):
        for name, value in recorded[0].items():
            assert name in written[0], name
            if isinstance(value, int | float) and written[0][name] is not None:
                assert type(written[0][name]) is type(value), name


def test_a_line_says_what_was_measured(folder: SweepFolder, tmp_path: Path):
    written = lines_of(exported(folder, "bench-serving", tmp_path / "out.jsonl"))
    line = next(found for found in written if found["max_concurrency"] == 64)
    level = load_sweep(folder.store, "latest").trials[0].levels[2]
    assert line["output_throughput"] == level.metrics["output_throughput"]
    assert line["request_rate"] == math.inf
    assert (line["random_input_len"], line["random_output_len"]) == (1024, 512)
    assert line["server_info"]["tp"] == 8
    assert line["total_output_tokens_retokenized"] is None
    assert line["sglang_sweep"]["verdict"] == "valid"


def test_the_lines_are_a_table_to_others(folder: SweepFolder, tmp_path: Path):
    table = pl.read_ndjson(_finite(exported(folder, "bench-serving", tmp_path / "out.jsonl")))
    assert table["output_throughput"].dtype == pl.Float64
    assert table["completed"].dtype == pl.Int64


def _finite(path: Path) -> Path:
    """Polars' JSON has no Infinity, which is what bench_serving writes; Python's and pandas' do."""
    path.write_text(path.read_text().replace("Infinity", "null"))
    return path


def test_details_hold_each_request(folder: SweepFolder, tmp_path: Path):
    written = lines_of(exported(folder, "bench-serving", tmp_path / "out.jsonl", details=True))
    line = written[0]  # the first record warms up
    assert line["input_lens"] == [1024, 1024]
    assert line["output_lens"] == [4, 4]
    assert line["ttfts"] == pytest.approx([0.200005, 0.200005])
    assert [len(gaps) for gaps in line["itls"]] == [3, 3]
    assert line["itls"][0] == pytest.approx([0.01] * 3)
    assert line["errors"] == ["", ""]


def test_details_need_the_requests(folder: SweepFolder, tmp_path: Path):
    next(folder.trials.glob("*/requests.parquet")).unlink()
    with pytest.raises(InputError, match="leave --details out"):
        exported(folder, "bench-serving", tmp_path / "out.jsonl", details=True)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("to", ["bench-serving", "vllm"])
def test_a_round_trip_keeps_every_shared_metric(folder: SweepFolder, tmp_path: Path, to: Format):
    target = exported(folder, to, tmp_path / ("out" + ".jsonl" * (to == "bench-serving")))
    back = import_runs(tmp_path / "other", read_paths([target]), "back", now=NIGHT + 1)

    before, after = load_sweep(folder.store, "latest"), load_sweep(back.store, "latest")
    had = {str(r.trial.axes): r for r in before.trials if r.levels}
    got = {str(r.trial.axes): r for r in after.trials}
    assert had.keys() == got.keys()
    for axes, result in had.items():
        levels = {(lv.level, lv.repeat): lv.metrics for lv in got[axes].levels}
        assert len(levels) == len(result.levels)
        for level in result.levels:
            came = levels[level.level, level.repeat]
            assert came == {name: level.metrics[name] for name in came}
            assert {"output_throughput", "p99_ttft_ms", "mean_e2e_latency_ms"} <= came.keys()


@pytest.mark.parametrize("version", RECORDED)
def test_what_the_real_bench_serving_wrote_is_read(tmp_path: Path, version: str):
    [run] = read_paths([RECORDED[version]])
    assert (run.request_rate, run.concurrency) == (4.0, None)
    assert run.metrics["completed"] == 12
    expected = {"0.5.23": 54.8968921910388, "0.5.9": 46.70148892974336}
    assert run.metrics["output_throughput"] == expected[version]
    assert "random_input_len" not in run.metrics
    assert run.asked == {"input_len": 64, "output_len": 16}
    assert run.model_path == "/models/tiny"


def test_imported_results_are_marked_everywhere(tmp_path: Path):
    folder = import_runs(tmp_path, read_paths([RECORDED["0.5.23"]]), "mine", now=NIGHT)
    stored = load_sweep(tmp_path, "latest")
    [result] = stored.trials
    assert result.verdict is TrialVerdict.SUSPECT
    assert "imported from sglang.bench_serving" in result.reason
    assert {level.verdict.validity for level in result.levels} == {Validity.SUSPECT}
    assert stored.record.imported_from == "sglang.bench_serving: bench-serving-0.5.23.jsonl"
    rows = pl.read_parquet(folder.summary)
    assert rows["imported_from"].to_list() == [stored.record.imported_from]
    assert rows["trial_verdict"].to_list() == ["suspect"]


def test_imported_results_are_no_night(tmp_path: Path):
    import_runs(tmp_path, read_paths([RECORDED["0.5.23"]]), "mine", now=NIGHT)
    record = load_sweep(tmp_path, "latest").record
    assert read_board(tmp_path, [record], ["output_throughput"]).series == ()


def test_lines_of_one_server_are_repeats_and_of_others_trials(tmp_path: Path):
    line = lines_of(RECORDED["0.5.23"])[0]
    other = {**line, "server_info": {**line["server_info"], "chunked_prefill_size": 8192}}
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(map(json.dumps, (line, line, other))))
    import_runs(tmp_path / "store", read_paths([path]), "many", now=NIGHT)
    trials = load_sweep(tmp_path / "store", "latest").trials
    assert sorted(result.trial.label for result in trials) == [
        "chunked_prefill_size=4096",
        "chunked_prefill_size=8192",
    ]
    assert sorted(tuple(lv.repeat for lv in r.levels) for r in trials) == [(1,), (1, 2)]


def vllm_folder(path: Path) -> Path:
    """A folder as `vllm bench sweep serve` leaves it."""
    for size in (32, 64):
        at = path / f"SERVE--max_num_seqs={size}-BENCH--random_input_len=64"
        at.mkdir(parents=True)
        for number in (0, 1):
            run = {**VLLM, "run_number": number, "max_num_seqs": size, "random_input_len": 64}
            (at / f"run={number}.json").write_text(json.dumps(run, indent=4))
        (at / "summary.json").write_text("[]")
        (at / "warmup.json").write_text(json.dumps({**VLLM, "max_num_seqs": size}))
    return path


def test_a_folder_of_vllms_sweep_is_read(tmp_path: Path):
    runs = read_paths([vllm_folder(tmp_path / "sweep")])
    assert [run.axes for run in runs] == [{"max_num_seqs": n} for n in (32, 32, 64, 64)]
    first = runs[0]
    assert (first.concurrency, first.request_rate) == (16, None)
    assert first.metrics["mean_e2e_latency_ms"] == 800.0
    assert first.metrics["total_throughput"] == 295.2
    assert first.metrics["failed"] == 1
    assert first.asked == {"requests": 128, "input_len": 64}

    import_runs(tmp_path / "store", runs, "vllm", now=NIGHT)
    trials = load_sweep(tmp_path / "store", "latest").trials
    assert [len(result.levels) for result in trials] == [2, 2]


def test_ours_is_a_folder_that_vllm_reads(folder: SweepFolder, tmp_path: Path):
    target = exported(folder, "vllm", tmp_path / "out")
    summaries = sorted(target.glob("*/summary.json"))
    assert len(summaries) == 9
    runs = json.loads(summaries[0].read_text())
    assert [run["run_number"] for run in runs] == [0, 1]
    missing = VLLM.keys() - runs[0].keys()
    assert missing == set()
    for name, value in VLLM.items():
        if isinstance(value, int | float) and runs[0][name] is not None:
            assert type(runs[0][name]) is type(value), name


def test_aiperf_finds_its_metrics(folder: SweepFolder, tmp_path: Path):
    target = exported(folder, "aiperf", tmp_path / "out")
    files = sorted(target.glob("*/*/profile_export_aiperf.json"))
    assert len(files) == 18
    found = json.loads(files[0].read_text())
    assert found["schema_version"] == "1.5"
    assert found["output_token_throughput"]["unit"] == "tokens/sec"
    ttft = found["time_to_first_token"]
    assert {"unit", "avg", "p50", "p99", "count"} <= ttft.keys()
    assert ttft["unit"] == "ms"
    assert found["request_count"] == {"unit": "requests", "avg": 256.0}
    assert found["sglang_sweep"]["verdict"] == "valid"


@pytest.mark.parametrize(("n", "expected"), [(1, None), (2, 4 * math.sqrt(2)), (0, None)])
def test_aiperfs_deviation_is_of_a_sample(tmp_path: Path, n: int, expected: float | None):
    folder = create_sweep(tmp_path / "store", factory.sweep(), now=NIGHT)
    level = factory.level(1300, std_ttft_ms=4.0, completed=float(n))
    save_trial(folder, factory.measured(factory.trial(), levels=(level,)))
    target = exported(folder, "aiperf", tmp_path / "out")
    found = json.loads(next(target.rglob("*.json")).read_text())
    std = found["time_to_first_token"].get("std")
    assert std is None if expected is None else std == pytest.approx(expected)


def test_csv_is_the_summary(folder: SweepFolder, tmp_path: Path):
    table = pl.read_csv(exported(folder, "csv", tmp_path / "out.csv"))
    kept = pl.read_parquet(folder.summary)
    assert table.height == kept.height == 18
    assert table.columns == kept.columns
    assert table["output_throughput"].to_list() == kept["output_throughput"].to_list()


def test_a_comparison_with_an_import_decides_nothing(folder: SweepFolder, tmp_path: Path):
    target = exported(folder, "bench-serving", tmp_path / "out.jsonl")
    theirs = import_runs(
        folder.store, read_paths([target]), "theirs", now=NIGHT + 1, workload="chat"
    )
    mine = load_sweep(folder.store, folder.sweep_id)
    other = load_sweep(folder.store, theirs.sweep_id)
    with pytest.raises(UnlikeRuns):
        compare_sweeps(mine, other)
    found = compare_sweeps(mine, other, force=True)
    cells = [cell for pair in found.pairs for cell in pair.cells]
    assert len(found.pairs) == 3
    assert {cell.verdict for cell in cells} == {CellVerdict.INCONCLUSIVE}
    assert all(cell.ratio is None or cell.ratio.value == 1 for cell in cells)
    assert "imported from sglang.bench_serving" in cells[0].note


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "{", "a.jsonl:1: no JSON"),
        ("a.jsonl", "[1]", "a.jsonl:1: no JSON object"),
        ("a.json", '{"colour": 1}', "no line of sglang.bench_serving"),
        ("a.jsonl", b"\xff\xfe", "can't be read"),
    ],
)
def test_another_file_is_named(tmp_path: Path, name: str, content: str | bytes, said: str):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        read_paths([path])


def test_a_folder_without_results_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"no run=N\.json"):
        read_paths([tmp_path])
    with pytest.raises(InputError, match="can't be read"):
        read_paths([tmp_path / "nosuch.json"])


def test_nothing_is_overwritten(folder: SweepFolder, tmp_path: Path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        exported(folder, "csv", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_both_kinds_of_level_under_one_name_are_refused(tmp_path: Path):
    line = lines_of(RECORDED["0.5.23"])[0]
    path = tmp_path / "both.jsonl"
    path.write_text(json.dumps(line) + "\n" + json.dumps({**line, "max_concurrency": 4}))
    import_runs(tmp_path / "a", read_paths([path]), "fine", now=NIGHT)
    cells = {lv.workload for r in load_sweep(tmp_path / "a", "latest").trials for lv in r.levels}
    assert cells == {"random-ids", "random-ids-rate"}
    with pytest.raises(InputError, match="import the two apart"):
        import_runs(tmp_path / "b", read_paths([path]), "not", now=NIGHT, workload="chat")
