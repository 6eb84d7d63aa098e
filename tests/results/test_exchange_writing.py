"""How each tool is told of a run, key by key: of one that has, or lacks, a bit of everything."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.errors import InputError
from tasks.domain.measurement import (
    LevelResult,
    RequestOutcome,
    RequestRecord,
    RunVerdict,
    SearchRole,
    Validity,
)
from tasks.domain.nvidia_smi import GpuSample
from tasks.results.exchange import aiperf, bench_serving, vllm
from tasks.results.exchange.published import NotPublished, publish
from tasks.results.exchange.runs import StoredRun, runs_of
from tasks.results.exchange.write import Format, export
from tasks.results.frames import save_requests
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.saving import save_gpu
from tasks.results.store import create_sweep, load_sweep
from tests.results import factory
from tests.results.factory import NIGHT

MS = 1_000_000
OPEN = {"name": "chat", "input_len": 64, "output_len": 16, "request_rate": 4.0, "requests": 40}


def open_level(**metrics: float) -> LevelResult:
    verdict = RunVerdict(Validity.SUSPECT, ("too few requests",))
    return LevelResult("chat", None, 4.0, 2, {"output_throughput": 99.5, **metrics}, verdict)


def run_of(level: LevelResult, result: TrialResult | None = None, **workload: object) -> StoredRun:
    """A run of a sweep whose one workload is an open loop, or has what is given besides."""
    asked = factory.sweep(workloads=[{**OPEN, **workload}], objective={}, constraints=[])
    record = SweepRecord("20261130T020000Z-x-ab12", asked, SweepState.COMPLETED, NIGHT, NIGHT)
    result = replace(result or factory.measured(factory.trial(cuda_graph_max_bs=64)), levels=())
    return StoredRun(
        StoredSweep(record, (result,)), replace(result, levels=(level,)), level, asked.workloads[0]
    )


def test_bench_serving_is_told_an_open_loop_and_its_bounds():
    line = bench_serving.write_line(
        run_of(open_level(total_input_tokens=640.0, request_goodput=3.5, slo_attainment=0.9))
    )
    assert (line["request_rate"], line["max_concurrency"]) == (4.0, None)
    assert line["dataset_name"] == "random-ids"
    assert line["total_input_tokens"] == line["total_input_text_tokens"] == 640
    assert (line["request_goodput"], line["slo_attainment"]) == (3.5, 0.9)
    assert line["server_info"]["model_path"] == "/shared/kimi-k2.5-int4"
    assert line["tag"] == f"20261130T020000Z-x-ab12/{_trial_id()}/chat/4/s/2"


def test_bench_serving_has_no_goodput_without_bounds():
    line = bench_serving.write_line(run_of(open_level(), dataset="text"))
    assert not {"request_goodput", "slo_attainment"} & line.keys()
    assert line["dataset_name"] == "text"


def _trial_id() -> str:
    return factory.trial(cuda_graph_max_bs=64).trial_id


def seen(index: int, chunks: Mapping[int, int], **changes: object) -> RequestRecord:
    """A request sent at 100 ms; chunks by their ms."""
    told: dict[str, object] = {
        "index": index,
        "intended_ns": 100 * MS,
        "sent_ns": 101 * MS,
        "end_ns": 200 * MS,
        "outcome": RequestOutcome.FINISHED,
        "arrival_ns": tuple(at * MS for at in chunks),
        "cumulative_tokens": tuple(chunks.values()),
    }
    return RequestRecord(**{**told, **changes})  # type: ignore[arg-type]


def test_details_of_requests_that_lack_something(tmp_path: Path):
    """Text after the first token; nothing but chunks; nothing at all; and another's requests."""
    wanted = (
        seen(2, {}, outcome=RequestOutcome.CUT, error="reset by peer", prompt_tokens=5),
        seen(0, {110: 1, 116: 3, 120: 3}, first_text_ns=116 * MS, completion_tokens=4),
        seen(1, {130: 2, 133: 3}),
        seen(3, {190: 9}, warmup=True),
    )
    level = replace(open_level(), records=wanted)
    others = (
        replace(level, workload="code", records=(seen(7, {110: 1}),)),
        replace(level, request_rate=8.0, records=(seen(8, {110: 1}),)),
        replace(level, repeat=1, records=(seen(9, {110: 1}),)),
    )
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    result = factory.measured(factory.trial(), levels=(level, *others))
    save_requests(folder, result)

    found = bench_serving.details(run_of(level), folder.requests(result.trial.trial_id))

    assert found == {
        "input_lens": [0, 0, 5],
        "output_lens": [4, 3, 0],
        "ttfts": pytest.approx([0.016, 0.030, 0.0]),
        "itls": [pytest.approx([0.003, 0.003]), pytest.approx([0.003]), []],
        "generated_texts": ["", "", ""],
        "errors": ["", "", "reset by peer"],
    }


def test_vllm_is_told_the_run_in_its_own_words():
    metrics = {"mean_e2e_latency_ms": 8.0, "total_throughput": 120.0, "completed": 39.0}
    run = run_of(open_level(**metrics, failed=1.0, request_goodput=3.5, accept_length=2.5))
    written = vllm.write_run(run)
    assert written["date"] == "20261130-020000"
    assert (written["num_prompts"], written["run_number"]) == (40, 2)
    assert (written["request_rate"], written["max_concurrency"]) == (4.0, None)
    assert (written["mean_e2el_ms"], written["total_token_throughput"]) == (8.0, 120.0)
    assert (written["completed"], written["failed"]) == (39, 1)
    assert isinstance(written["failed"], int)
    assert written["request_goodput"] == 3.5
    assert written["cuda_graph_max_bs"] == 64
    assert not {"accept_length", "mean_e2e_latency_ms", "input_throughput"} & written.keys()


def test_vllms_folders_are_named_by_server_and_load():
    assert vllm.combination(run_of(open_level())) == (
        "SERVE--cuda_graph_max_bs=64-BENCH--request_rate=4-chat"
    )
    plain = factory.measured(factory.trial())
    assert vllm.combination(run_of(open_level(), plain)) == "BENCH--request_rate=4-chat"
    odd = factory.measured(replace(factory.trial(), axes={"env.A": "x y/z"}))
    closed = factory.level(1.0, concurrency=16)
    assert vllm.combination(run_of(closed, odd)) == (
        "SERVE--env.A=x_y_z-BENCH--max_concurrency=16-chat"
    )


def test_aiperfs_file_of_a_run():
    metrics = {
        **{"request_throughput": 2.0, "completed": 5.0, "failed": 1.0, "duration": 3.0},
        **{"total_throughput": 120.0, "total_output_tokens": 300.0, "request_goodput": 1.5},
        **{f"{name}_tpot_ms": at for name, at in (("mean", 3.0), ("median", 2.0), ("p99", 9.0))},
        **{"std_tpot_ms": 2.0, "mean_itl_ms": 1.0, "mean_icl_ms": 7.0, "slo_attainment": 0.5},
    }
    written = aiperf.write_run(run_of(open_level(**metrics)))
    ours = written.pop("sglang_sweep")
    name = f"20261130T020000Z-x-ab12/{_trial_id()}/chat/4/s/2"
    assert ours["reasons"] == ["too few requests"]
    assert written == {
        "schema_version": "1.5",
        "benchmark_id": name,
        "start_time": "2026-11-30T02:00:00+00:00",
        "was_cancelled": False,
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "request_count": {"unit": "requests", "avg": 5.0},
        "error_request_count": {"unit": "requests", "avg": 1.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 99.5},
        "total_token_throughput": {"unit": "tokens/sec", "avg": 120.0},
        "total_output_tokens": {"unit": "tokens", "avg": 300.0},
        "benchmark_duration": {"unit": "sec", "avg": 3.0},
        "goodput": {"unit": "requests/sec", "avg": 1.5},
        "inter_token_latency": {
            **{"unit": "ms", "avg": 3.0, "p50": 2.0, "p99": 9.0, "count": 5},
            "std": pytest.approx(math.sqrt(5)),
        },
        "inter_chunk_latency": {"unit": "ms", "avg": 7.0},
        "run_info": {
            "benchmark_id": name,
            "trial": 2,
            "variation_label": "cuda_graph_max_bs=64",
            "variation_values": {"cuda_graph_max_bs": 64},
        },
    }


def test_what_a_reader_must_not_miss_goes_along():
    cured = replace(
        factory.measured(factory.trial(cuda_graph_max_bs=64)),
        verdict=TrialVerdict.SUSPECT,
        remedies=(factory.LESS_MEMORY,),
    )
    assert run_of(open_level(), cured).provenance == {
        "sweep_id": "20261130T020000Z-x-ab12",
        "trial_id": _trial_id(),
        "axes": {"cuda_graph_max_bs": 64},
        "repeat": 2,
        "verdict": "suspect",
        "reasons": ["too few requests"],
        "trial_verdict": "suspect",
        "altered": True,
    }


def test_counts_are_whole_and_what_nobody_told_is_none():
    found = run_of(open_level(max_concurrent_requests=9.0, failed=0.0, mean_ttft_ms=3.0))
    names = ("max_concurrent_requests", "failed", "mean_ttft_ms", "completed")
    assert json.dumps(found.metrics(names)) == (
        '{"max_concurrent_requests": 9, "failed": 0, "mean_ttft_ms": 3.0, "completed": null}'
    )


def test_what_a_search_found_is_written_once():
    stepped = replace(open_level(), search=SearchRole.STEP)
    found = replace(open_level(), search=SearchRole.FOUND)
    stored = run_of(open_level()).stored
    [result] = stored.trials
    several = replace(stored, trials=(replace(result, levels=(stepped, found)),))
    assert [run.level.search for run in runs_of(several)] == [SearchRole.STEP]


def exported(tmp_path: Path, to: Format, *levels: LevelResult, details: bool = False) -> Path:
    folder = create_sweep(tmp_path / "store", factory.sweep(), now=NIGHT)
    result = factory.measured(factory.trial(), levels=levels)
    stored = replace(load_sweep(folder.store, "latest"), trials=(result,))
    export(stored, folder, to, tmp_path / "out", details=details)
    return tmp_path / "out"


def test_an_export_of_nothing_and_details_of_others_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="measured nothing"):
        exported(tmp_path, "csv")
    with pytest.raises(InputError, match="--details: vllm has none"):
        exported(tmp_path, "vllm", factory.level(1.0), details=True)


def test_repeats_are_files_of_their_own(tmp_path: Path):
    levels = [factory.level(1.0, repeat=repeat) for repeat in (3, 5)]
    target = exported(tmp_path / "v", "vllm", *levels)
    [at] = target.iterdir()
    assert sorted(path.name for path in at.iterdir()) == [
        "run=0.json",
        "run=1.json",
        "summary.json",
    ]
    assert json.loads((at / "run=1.json").read_text())["run_number"] == 1
    rated = [replace(level, concurrency=None, request_rate=4.0) for level in levels]
    target = exported(tmp_path / "a", "aiperf", *rated)
    assert sorted(path.name for path in target.glob("*/*")) == ["chat-4_s-3", "chat-4_s-5"]


def test_a_list_in_csv_is_text(tmp_path: Path):
    level = factory.level(1.0, reasons=("late", "too few"), validity=Validity.SUSPECT)
    table = pl.read_csv(exported(tmp_path, "csv", level))
    assert table["reasons"].to_list() == ["late; too few"]


def test_the_gpus_go_along_and_a_summary_need_not_be_there(tmp_path: Path):
    folder = create_sweep(tmp_path / "store", factory.sweep(), now=NIGHT)
    level = factory.level(1.0, records=(factory.record(0),))
    save_requests(folder, factory.measured(factory.trial(), levels=(level,)))
    sample = GpuSample(NIGHT, 1, 0, 300.0, None, None, None, None, None)
    save_gpu(folder, factory.trial().trial_id, 1, [sample])
    assert publish(folder, f"{tmp_path}/out/") == (2, ())
    there = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert there == ["gpu.parquet", "requests.parquet"]


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("<Code>NoSuchKey</Code>\n<Message> gone\n</Message>", "not written (NoSuchKey: gone);"),
        ("x status code: 403 Forbidden: y", "not written (403 Forbidden);"),
        ("first line\nsecond", "not written (first line);"),
        ("", "not written (OSError);"),
    ],
)
def test_what_a_storage_refuses_is_told_in_a_line(cause: str, said: str):
    told = str(NotPublished("gs://bucket/x", OSError(cause)))
    assert said in told
    assert "'bucket'" in told
    assert "GOOGLE_SERVICE_ACCOUNT" in told
