"""The benchmarks run at all: each with the least that it can do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*words: str) -> str:
    """Run a benchmark as a person does; what it printed."""
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_load_clients():
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    cores = ("--server-core", str(first), "--client-core", str(last))
    few = ("--rounds", "1", "--start-ups", "1")
    said = run("benchmarks.load_client", "smoke", "smoke-open", *few, *cores)
    assert "1/1 smoke reader: 32 of 32 tokens" in said
    assert "1/1 smoke ours: 32 of 32 tokens, 0 of 0 failures, exit 0" in said
    assert "1/1 smoke-open ours: 80 of 80 tokens" in said
    for figure in ("cpu_over_reader", "itl_p99_%", "ttft_p99_%", "sends_within_1ms_%"):
        assert re.search(rf"  {figure} +-?[\d.,]+", said), figure


def test_the_diagnosis():
    said = run("benchmarks.diagnosis", "--megabytes", "1", "--rounds", "1", "--alive", "0.2")
    assert "death to diagnosis, here: median" in said


def test_the_nights():
    said = run("benchmarks.regression_nights", "--histories", "1")
    assert re.search(r"everywhere, gaps( +(0|100)%){4}", said)


def test_the_stores_scale(tmp_path: Path):
    least = ("--trials", "1", "--requests", "400", "--rounds", "1")
    said = run("benchmarks.store_scale", *least, "--folder", str(tmp_path))
    assert "400 requests, 40,000 chunks" in said
    assert "132 figures agree to 9 digits" in said
