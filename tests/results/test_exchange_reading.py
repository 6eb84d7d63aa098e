"""What other tools say of a run, key by key, and what an import makes of it."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.errors import InputError
from tasks.results.exchange import bench_serving, vllm
from tasks.results.exchange.read import import_runs, read_paths
from tasks.results.exchange.runs import ForeignRun
from tasks.results.records import StoredSweep, SweepState
from tasks.results.store import load_sweep
from tests.results.factory import NIGHT


def line(**changes: object) -> dict[str, object]:
    """A line of bench_serving with the least that makes one; what is None is left out."""
    told = {
        **{"output_throughput": 10.0, "mean_e2e_latency_ms": 5.0, "completed": 12},
        **{"request_rate": math.inf, "max_concurrency": 8, "dataset_name": "random"},
        **{"server_info": {"model_path": "/m"}, **changes},
    }
    return {name: value for name, value in told.items() if value is not None}


def read(*lines: dict[str, object]) -> list[ForeignRun]:
    return list(bench_serving.read_lines({f"a.jsonl:{n}": each for n, each in enumerate(lines)}))


@pytest.mark.parametrize(
    ("changes", "concurrency", "rate"),
    [
        ({}, 8, None),
        ({"request_rate": 4.0}, 8, None),
        ({"request_rate": 4.0, "max_concurrency": None}, None, 4.0),
        ({"max_concurrency": None}, 12, None),
        ({"max_concurrency": None, "errors": [""] * 15}, 15, None),
        ({"max_concurrency": None, "completed": None}, 1, None),
        ({"max_concurrency": None, "completed": 0}, 1, None),
        ({"max_concurrency": None, "request_rate": True}, 12, None),
    ],
)
def test_the_level_of_a_line(changes: dict[str, object], concurrency: int | None, rate: float):
    [run] = read(line(**changes))
    assert (run.concurrency, run.request_rate) == (concurrency, rate)


def test_the_metrics_of_a_line():
    [run] = read(
        line(errors=["", "", "reset"], completed=2, mean_ttft_ms=math.nan, concurrency=True)
    )
    assert run.metrics == {
        "output_throughput": 10,
        "mean_e2e_latency_ms": 5,
        "completed": 2,
        "failed": 1,
    }


def test_the_model_of_a_line():
    named = [{"model_path": "/m"}, {"other": 1}, {"other": 1}]
    lines = [line(server_info=info) for info in named]
    lines[1] |= {"model": "/n"}
    assert [run.model_path for run in read(*lines)] == ["/m", "/n", "unknown"]


def test_what_lengths_a_line_tells():
    [run] = read(line(random_input_len=64, random_output_len=None))
    assert run.asked == {"input_len": 64}


def test_servers_differ_by_what_configures_them():
    """Not by their ports, nor by what isn't a scalar; by the tag that a person gave."""
    infos = [
        {
            "model_path": "/m",
            "tp": 1,
            "port": 7,
            "nccl_port": 5,
            "random_seed": 1,
            "lora_paths": ["a"],
        },
        {
            "model_path": "/m",
            "tp": True,
            "port": 8,
            "nccl_port": 6,
            "random_seed": 2,
            "lora_paths": ["b"],
        },
    ]
    runs = read(*(line(server_info=info, tag=tag) for info, tag in zip(infos, "ab", strict=True)))
    assert [run.axes for run in runs] == [{"tp": 1, "tag": "a"}, {"tp": True, "tag": "b"}]


def test_our_own_lines_say_their_axes():
    lines = [
        line(server_info={"x": n}, sglang_sweep={"axes": {"steps": n}}, tag=str(n)) for n in (0, 3)
    ]
    assert [run.axes for run in read(*lines)] == [{"steps": 0}, {"steps": 3}]


@pytest.mark.parametrize("lacking", ["output_throughput", "mean_e2e_latency_ms"])
def test_a_line_of_another_kind_is_refused(lacking: str):
    with pytest.raises(InputError, match=r"no line of sglang\.bench_serving"):
        read(line(**{lacking: None}))


def of_vllm(**changes: object) -> dict[str, object]:
    told = {
        **{"output_throughput": 10.0, "total_token_throughput": 15.0, "completed": 12},
        **{"request_rate": "inf", "max_concurrency": 8, "num_prompts": 40, **changes},
    }
    return {name: value for name, value in told.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "concurrency", "rate", "requests"),
    [
        ({}, 8, None, 40),
        ({"request_rate": 4.0}, 8, None, 40),
        ({"request_rate": 4.0, "max_concurrency": None}, None, 4.0, 40),
        ({"max_concurrency": None}, 40, None, 40),
        ({"max_concurrency": None, "num_prompts": None}, 12, None, 12),
        ({"num_prompts": None, "completed": None}, 8, None, 1),
    ],
)
def test_the_level_of_vllms_run(
    changes: dict[str, object], concurrency: int | None, rate: float | None, requests: int
):
    [run] = vllm.read_runs({"run=0.json": of_vllm(**changes)})
    assert (run.concurrency, run.request_rate, run.asked) == (
        concurrency,
        rate,
        {"requests": requests},
    )


def test_vllms_own_words_are_no_axes():
    words = {
        **{"date": "20261129", "backend": "openai", "seed": 0, "errors": ["", ""]},
        **{"p99.9_ttft_ms": 1.0, "spec_decode_rate": 0.5, "max_x_per_s": 2.0, "rtfx": 1.0},
        **{
            "random_input_len": "64",
            "temperature_x": 0,
            "concurrency": 7,
            "total_throughput": 9.0,
            "mean_e2e_latency_ms": 1,
        },
        **{"dataset_name": "sonnet", "random_output_len": 16, "compilation": {"level": 3}},
        **{"max_num_seqs": 32, "dtype": None, "_benchmark_name": "small"},
    }
    [run] = vllm.read_runs({"run=0.json": of_vllm(**words)})
    assert run.axes == {"configuration": "small", "max_num_seqs": 32}
    assert run.dataset == "sonnet"
    assert run.asked == {"requests": 40, "output_len": 16}


def test_a_result_without_vllms_total_is_refused():
    with pytest.raises(InputError, match="no result of vllm bench"):
        list(vllm.read_runs({"x.json": of_vllm(total_token_throughput=None)}))


def foreign(**changes: object) -> ForeignRun:
    told: dict[str, object] = {
        **{"place": "/a/b.jsonl:1", "tool": "sglang.bench_serving", "model_path": "/m"},
        **{"dataset": "random", "concurrency": 16, "request_rate": None},
        **{"metrics": {"output_throughput": 1.0}, "asked": {"requests": 40}, **changes},
    }
    return ForeignRun(**told)  # type: ignore[arg-type]


def imported(tmp_path: Path, *runs: ForeignRun, name: str = "mine") -> StoredSweep:
    import_runs(tmp_path, runs, name, now=NIGHT)
    return load_sweep(tmp_path, "latest")


def test_repeats_are_found_wherever_they_stand(tmp_path: Path):
    """Two configurations in turn, two models, and two rates of the first."""
    rated = [foreign(concurrency=None, request_rate=rate) for rate in (4.0, 8.0)]
    stored = imported(
        tmp_path,
        foreign(axes={"tp": 1}),
        foreign(axes={"tp": 2}),
        foreign(axes={"tp": 1}),
        foreign(model_path="/n", axes={"tp": 1}),
        *(replace(run, axes={"tp": 1}) for run in rated),
    )
    found = {(r.trial.configuration.model_path, r.trial.axes["tp"]): r for r in stored.trials}
    assert len(found) == len(stored.trials) == 3
    first = found["/m", 1]
    assert [(level.level, level.repeat) for level in first.levels] == [
        *(("c16", 1), ("c16", 2), ("4/s", 1), ("8/s", 1)),
    ]
    assert first.repeats_done == 2
    assert first.levels[0].client == {"engine": "sglang.bench_serving", "place": "/a/b.jsonl:1"}
    assert stored.sweep.server.model_path == "/m"


def test_an_imported_sweep_says_what_it_is(tmp_path: Path):
    places = [f"/a/{letter}.jsonl:{n}" for letter in "abcde" for n in (1, 2)]
    stored = imported(tmp_path, *(foreign(place=place) for place in places), name="my runs!")
    assert stored.sweep.name == "my-runs-"
    assert stored.record.state is SweepState.COMPLETED
    assert stored.record.reason == f"imported from {stored.record.imported_from}"
    assert stored.record.imported_from == (
        "sglang.bench_serving: a.jsonl, b.jsonl, c.jsonl and 2 more"
    )
    [workload] = stored.sweep.workloads
    assert (workload.name, workload.requests) == ("random", 48)  # whole rounds of 16 slots


def test_an_imported_workload_has_a_name_that_a_sweep_file_may_have(tmp_path: Path):
    stored = imported(tmp_path, foreign(dataset="my data/set"))
    assert [workload.name for workload in stored.sweep.workloads] == ["my-data-set"]


def test_what_no_sweep_file_could_say_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="import"):
        import_runs(tmp_path, [foreign(asked={"requests": 40, "input_len": -1})], "x", now=NIGHT)


def test_a_folder_of_lines_with_empty_ones_is_read(tmp_path: Path):
    text = "\n".join([json.dumps(line()), "", json.dumps(line()), ""])
    (tmp_path / "a.jsonl").write_text(text)
    found = read_paths([tmp_path])
    assert [run.place for run in found] == [f"{tmp_path}/a.jsonl:{n}" for n in (1, 3)]
