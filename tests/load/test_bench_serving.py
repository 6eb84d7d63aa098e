"""SGLang's own client, as far as it can be had without SGLang: its flags and its JSONL."""

import json
import stat
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from settings.workload import Workload
from tasks.domain.errors import InputError
from tasks.domain.measurement import RequestOutcome, Validity
from tasks.domain.sglang import RUST_CLIENT
from tasks.load.bench_serving import (
    Foreign,
    ForeignClientFailed,
    read_result,
    run_foreign,
)
from tasks.load.target import Level, Target
from tests.load.streaming_server import StreamingServer

WORKLOAD = Workload(name="w", input_len=4, output_len=3, concurrency=[3], requests=3)

RESULT = {
    "tag": None,
    "backend": "sglang",
    "request_rate": float("inf"),
    "max_concurrency": 2,
    "random_input_len": 4,
    "server_info": {"model_path": "/m"},
    "duration": 1.5,
    "completed": 2,
    "total_output_tokens": 6,
    "mean_ttft_ms": 15.0,
    "accept_length": None,
    "input_lens": [4, 4, 4],
    "output_lens": [3, 3, 0],
    "ttfts": [0.01, 0.02, 0.0],
    "itls": [[0.001, 0.002], [0.004], []],
    "generated_texts": ["a", "b", ""],
    "errors": ["", "", "Traceback\n  File x\nInternal Server Error"],
}
"""Of 0.5.9, cut down: the second request told one gap for two tokens, the third failed."""


def read(**changes):
    line = json.dumps({**RESULT, **changes}).encode()
    return read_result(line, WORKLOAD, Level(concurrency=2))


def test_metrics_keep_their_names():
    metrics = read().metrics
    assert metrics == {
        "duration": 1.5,
        "completed": 2,
        "failed": 1,
        "total_output_tokens": 6,
        "mean_ttft_ms": 15.0,
    }


def test_what_it_drops_has_failed():
    verdict = read().verdict
    assert verdict.validity is Validity.SUSPECT
    assert verdict.reasons[0] == "1 of 3 requests failed"
    assert read(completed=0).verdict.validity is Validity.INVALID


def test_requests_become_records():
    even, bundled, lost = read().records
    assert even.arrival_ns == (10_000_000, 11_000_000, 13_000_000)
    assert (even.cumulative_tokens, even.completion_tokens) == ((1, 2, 3), 3)
    assert (bundled.arrival_ns, bundled.cumulative_tokens) == ((20_000_000, 24_000_000), (1, 3))
    assert (lost.outcome, lost.error) == (RequestOutcome.HTTP_ERROR, "Internal Server Error")


def test_a_version_without_details_gives_no_records():
    line = json.dumps({"completed": 3, "duration": 1.0}).encode()
    result = read_result(line, WORKLOAD, Level(concurrency=2))
    assert (result.records, result.metrics["failed"]) == ((), 0)


def test_a_level_in_its_flags():
    target = Target("http://x:1", backend="openai")
    words = Foreign("py").command(target, "/m", WORKLOAD, Level(request_rate=2.5), 7, "o")
    assert words[:3] == ["py", "-m", "sglang.bench_serving"]
    flags = dict(zip(words[3:-3:2], words[4:-3:2], strict=True))
    assert flags["--backend"] == "sglang-oai"
    assert (flags["--request-rate"], flags["--seed"]) == ("2.5", "7")
    assert "--max-concurrency" not in flags
    assert "--tokenize-prompt" not in words


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "text"},
        {"precision": 0.01},
        {"slo": {"ttft_ms": 1}},
        {"concurrency": [], "request_rate": [1], "arrivals": "constant"},
    ],
)
def test_what_it_cannot_do_is_refused(changes):
    with pytest.raises(ValidationError, match="engine: sglang draws random tokens"):
        Workload(**{**WORKLOAD.model_dump(), **changes, "engine": "sglang"})


def program(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport sys, json\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def test_it_runs_and_its_last_line_is_the_result(tmp_path):
    body = (
        "out = sys.argv[sys.argv.index('--output-file') + 1]\n"
        "assert sys.argv[1:3] == ['-m', 'sglang.bench_serving']\n"
        f"open(out, 'w').write('{{}}\\n' + ({json.dumps(RESULT)!r}))"
    )
    async with StreamingServer() as server:
        foreign = Foreign(program(tmp_path, body))
        result = await run_foreign(
            foreign, Target(server.url), WORKLOAD, Level(concurrency=2), seed=1
        )
    assert (result.metrics["completed"], len(result.records)) == (2, 3)


async def test_its_failure_is_one_line(tmp_path):
    async with StreamingServer() as server:
        foreign = Foreign(program(tmp_path, "sys.exit('No module named sglang')"))
        with pytest.raises(ForeignClientFailed, match=r"ended with 1: No module named sglang$"):
            await run_foreign(foreign, Target(server.url), WORKLOAD, Level(concurrency=2), seed=1)


async def test_an_interpreter_that_is_not_there_is_named(tmp_path):
    async with StreamingServer() as server:
        foreign = Foreign(str(tmp_path / "none"))
        with pytest.raises(InputError, match=r"--python: .*none: No such file"):
            await run_foreign(foreign, Target(server.url), WORKLOAD, Level(concurrency=2), seed=1)


async def test_a_version_without_that_client_is_told(tmp_path):
    async with StreamingServer() as server:
        foreign = Foreign(program(tmp_path, ""), RUST_CLIENT)
        with pytest.raises(ForeignClientFailed, match="rust_client ended with 0: it gave no"):
            await run_foreign(foreign, Target(server.url), WORKLOAD, Level(concurrency=2), seed=1)
