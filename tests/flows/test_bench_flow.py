"""The flow that loads a server which runs already, as its form fills it in."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import PROJECT
from tests.load.streaming_server import StreamingServer
from tests.load.test_bench_serving import RESULT, program

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

RUN = """
import asyncio, json, sys
from flows.bench import bench

async def main():
    for form in json.loads(sys.argv[1]):
        state = await bench(**form, return_state=True)
        print(json.dumps([state.name, state.message]))

asyncio.run(main())
"""

CHAT = {"name": "chat", "input_len": 8, "output_len": 4, "requests": 6}


def looking_for(ttft_ms: float) -> dict[str, object]:
    """A workload that looks for the largest concurrency within an SLO."""
    largest = {"of": "concurrency", "low": 1, "high": 3, "attainment": 0.5}
    return {**CHAT, "largest": largest, "slo": {"ttft_ms": ttft_ms}}


@pytest.fixture
async def ends(prefect_api: dict[str, str], tmp_path: Path) -> list[tuple[str, str]]:
    """How the flow ends: of two searches, and where SGLang's own client is asked for."""
    body = (
        "out = sys.argv[sys.argv.index('--output-file') + 1]\n"
        f"open(out, 'w').write({json.dumps({**RESULT, 'completed': 6})!r})"
    )
    theirs = {**CHAT, "concurrency": [2], "engine": "sglang"}
    async with StreamingServer() as server:
        forms = [
            {"url": server.url, "workload": looking_for(ttft_ms=60_000)},
            {"url": server.url, "workload": looking_for(ttft_ms=0.001)},
            {"url": server.url, "workload": theirs, "python": program(tmp_path, body)},
            {"url": server.url, "workload": theirs, "python": str(tmp_path / "none")},
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RUN,
            json.dumps(forms),
            env={**os.environ, **prefect_api},
            cwd=PROJECT,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0
    return [tuple(json.loads(line)) for line in said.splitlines() if line.startswith(b"[")]


async def test_a_bench_does_what_its_workload_says(ends: list[tuple[str, str]]):
    (found, within), (_, beyond), (_, theirs), (failed, missing) = ends
    assert (found, within.partition(":")[0]) == (
        "Completed",
        "largest_concurrency within the SLO 3",
    )
    assert beyond.startswith("not even the least level keeps the SLO; c1: ")
    assert "sglang.bench_serving doesn't tell how late it was itself" in theirs
    assert failed == "Failed"
    assert "none: No such file" in missing
