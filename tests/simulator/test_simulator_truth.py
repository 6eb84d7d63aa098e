"""True figures from the command line, and the statistics behind them by hand."""

import json

import pytest

from simulator.figures import Stream, inter_token_s, percentile, summarise
from simulator.scenario import Scenario
from simulator.truth import answer

WORKLOAD = {"input_len": 100, "output_len": 50, "concurrency": 4, "requests": 8}
CHANNELS = {"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "16"}


def test_percentiles_interpolate_between_ranks() -> None:
    assert percentile([], 50) == 0
    assert percentile([3.0], 99) == 3.0
    assert percentile([4.0, 1.0, 2.0, 3.0], 50) == 2.5


def test_a_gap_before_several_tokens_counts_as_as_many_equal_ones() -> None:
    assert inter_token_s(Stream(0.0, 5, ((1.0, 1), (1.6, 3)))) == pytest.approx([0.2] * 3)


def test_figures_of_two_streams_by_hand() -> None:
    figures = summarise(
        [
            Stream(0.0, 10, ((1.0, 1), (2.0, 1), (3.0, 1))),
            Stream(1.0, 20, ((3.0, 1), (4.0, 2))),
        ]
    )
    assert figures["duration"] == 4.0
    assert figures["output_throughput"] == 6 / 4
    assert figures["request_throughput"] == 0.5
    assert figures["mean_ttft_ms"] == 1500
    assert figures["mean_tpot_ms"] == (1000 + 500) / 2
    assert figures["mean_itl_ms"] == (1000 + 1000 + 500 + 500) / 4
    assert figures["mean_e2e_latency_ms"] == 3000
    assert figures["concurrency"] == (3 + 3) / 4


def test_figures_of_no_streams_and_of_one_token() -> None:
    assert summarise([]) == {"completed": 0, "duration": 0.0}
    single = summarise([Stream(0.0, 5, ((0.5, 1),))])
    assert (single["mean_ttft_ms"], single["mean_tpot_ms"], single["mean_itl_ms"]) == (500, 0, 0)


def test_a_lone_stream_has_the_decode_rate_after_its_prefill() -> None:
    workload = {"input_len": 100, "output_len": 101, "concurrency": 1, "requests": 1}
    args = "--tp 8 --cuda-graph-max-bs 128"
    truth = answer({"args": args, "env": CHANNELS, "workload": workload}, Scenario())
    assert truth["mean_ttft_ms"] == pytest.approx(24)
    assert truth["mean_tpot_ms"] == pytest.approx(1000 / 92.6)
    assert truth["duration"] == pytest.approx(0.024 + 100 / 92.6)


def test_a_closed_loop_keeps_its_concurrency() -> None:
    truth = answer({"args": "--tp 8", "workload": WORKLOAD}, Scenario())
    assert truth["concurrency"] == pytest.approx(4)
    assert truth["completed"] == 8


def test_the_time_scale_is_part_of_the_truth() -> None:
    plain = answer({"args": "--tp 8", "workload": WORKLOAD}, Scenario())
    quick = answer({"args": "--tp 8", "workload": WORKLOAD}, Scenario(time_scale=0.25))
    assert quick["output_throughput"] == pytest.approx(4 * plain["output_throughput"])


def test_speculation_reports_its_acceptance(simulator) -> None:
    args = "--tp 8 --cuda-graph-max-bs 128 --speculative-algorithm EAGLE3"
    workload = {"input_len": 10, "output_len": 2000, "concurrency": 1, "requests": 2}
    truth = answer({"args": args, "env": CHANNELS, "workload": workload}, Scenario())
    assert truth["accept_length"] == pytest.approx(2.533, rel=0.003)
    assert 1000 / truth["mean_tpot_ms"] == pytest.approx(96.1, rel=0.003)


def test_one_query_on_the_command_line(simulator) -> None:
    workload = json.dumps(WORKLOAD)
    asked = ("--args", "--tp 8", "--workload", workload, "--env", "NCCL_MIN_NCHANNELS=16")
    run = simulator.program("simulator.truth", *asked, "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["completed"] == 8
    text = simulator.program("simulator.truth", *asked)
    assert "output_throughput" in text.stdout


def test_many_queries_on_standard_input(simulator) -> None:
    queries = [
        {"args": "--tp 8", "workload": WORKLOAD},
        {"args": ["--tp", "8", "--cuda-graph-max-bs", "1024"], "workload": WORKLOAD},
        {"args": "--no-such-flag", "workload": WORKLOAD},
        {"args": "--tp 8"},
    ]
    run = simulator.program("simulator.truth", input="\n".join(map(json.dumps, queries)))
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert [a["feasible"] for a in answers] == [True, False, False, False]
    assert answers[2]["error"] == "flags refused, exit 2"
    assert "workload" in answers[3]["error"]


def test_faults_that_apply_are_named(simulator) -> None:
    path = simulator.folder / "s.toml"
    path.write_text('[[fault]]\nkind = "garbage"\nspeedup = 2.0\nwhen = {tp_size = 8}\n')
    query = {"args": "--tp 8", "workload": WORKLOAD, "scenario": str(path)}
    wrong = answer(query, Scenario())
    right = answer({"args": "--tp 8", "workload": WORKLOAD}, Scenario())
    assert wrong["faults"] == ["garbage"]
    assert wrong["output_throughput"] == pytest.approx(2 * right["output_throughput"])
