"""The load client and the simulated SGLang, which know nothing of each other."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from settings.workload import Workload
from tasks.domain.measurement import RequestOutcome, Validity
from tasks.load.run import run_level
from tasks.load.target import Level, Target

PATIENCE_S = 30.0
FAST = "time_scale = 0.2\nlaunch_time_scale = 0.002\n"
SPECULATIVE = (
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "{model}"),
    *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "4"),
)


@contextmanager
def simulated(folder: Path, scenario: str = FAST, *args: str) -> Iterator[str]:
    """Run `simulator.launch_server` until the block ends; yield its URL once it serves."""
    model = folder / "model"
    model.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000}
    (model / "config.json").write_text(json.dumps(config))
    (folder / "scenario.toml").write_text(scenario)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "simulator.launch_server", "--model-path", str(model)]
    command += ["--port", str(port), *(arg.format(model=model) for arg in args)]
    env = {**os.environ, "SIMULATOR_SCENARIO": str(folder / "scenario.toml")}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        wait_until_it_serves(f"http://127.0.0.1:{port}", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def wait_until_it_serves(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the simulated server doesn't serve")


def workload(**changes) -> Workload:
    usual = {"name": "w", "input_len": 32, "output_len": 16, "concurrency": [4], "requests": 12}
    return Workload(**{**usual, **changes})


@pytest.fixture(scope="module")
def speculating(tmp_path_factory) -> Iterator[str]:
    with simulated(tmp_path_factory.mktemp("speculating"), FAST, *SPECULATIVE) as url:
        yield url


@pytest.mark.parametrize("backend", ["sglang", "openai", "openai-chat"])
@pytest.mark.parametrize("dataset", ["random", "text"])
async def test_every_backend_and_dataset(speculating, backend, dataset):
    target = Target(speculating, backend)
    result = await run_level(target, workload(dataset=dataset), Level(4), seed=1, repeat=0)
    assert result.verdict.validity is not Validity.INVALID
    assert {record.outcome for record in result.records} == {RequestOutcome.FINISHED}
    assert result.metrics["total_output_tokens"] == 12 * 16
    assert all(record.cumulative_tokens[-1] == 16 for record in result.records)
    assert 1 < result.metrics["accept_length"] <= 4
    if (backend, dataset) == ("sglang", "random"):
        assert result.metrics["total_input_tokens"] == 12 * 32
        assert any(len(record.cumulative_tokens) < 16 for record in result.records)


async def test_a_server_that_dies_under_the_load(tmp_path):
    scenario = FAST + '[[fault]]\nkind = "death-mid-load"\nafter_requests = 20\n'
    with simulated(tmp_path, scenario) as url:
        what = workload(requests=200)
        result = await run_level(Target(url), what, Level(4), seed=1, repeat=0)
    assert result.verdict.validity is Validity.INVALID
    assert f"server died after {result.metrics['completed']} of 200" in result.verdict.reasons[0]
    assert 0 < result.metrics["completed"] < 200
