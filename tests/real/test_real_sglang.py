"""The same flow against the real SGLang, unmodified, on this machine's CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.hosts.host import MARK

PROJECT = Path(__file__).resolve().parents[2]
ROOT = PROJECT / ".real-sglang"

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def swept() -> dict:
    """Run the real demo once; the report for machines.

    On a busy machine every trial may be suspect, which leaves no best: the exit status says so.
    """
    demo = [sys.executable, str(PROJECT / "scripts/real_sglang/demo.py"), "--root", str(ROOT)]
    done = subprocess.run(demo, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    command = [str(Path(sys.executable).with_name("sglang-sweep")), "report", "latest", "--json"]
    environment = {**os.environ, "SGLANG_SWEEP_CONFIG": str(ROOT / "sglang-sweep.toml")}
    report = subprocess.run(command, env=environment, capture_output=True, check=True)
    told = json.loads(report.stdout)
    best = any(trial["verdict"] == "measured" for trial in told["trials"])
    assert done.returncode == (0 if best else 1), done.stdout + done.stderr
    return told


def served(report: dict) -> list[dict]:
    return [t for t in report["trials"] if t["verdict"] in ("measured", "suspect")]


def test_two_configurations_serve_and_are_measured(swept):
    assert len(served(swept)) == 2
    for trial in served(swept):
        for level in ("short/c1", "short/c8", "theirs/c8"):
            metrics = trial["metrics"][level]
            assert metrics["completed"] == 32
            assert metrics["total_output_tokens"] == 32 * 64
            assert metrics["mean_ttft_ms"] > 0


def test_a_bad_flag_value_fails_its_launch_and_is_named(swept):
    [failed] = [t for t in swept["trials"] if t["verdict"] == "pruned"]
    assert failed["config"]["axes"]["args.schedule_policy"] == "shortest"
    [failure] = failed["failures"]
    assert failure["mode"] == "flag-bad-choice"
    assert any("invalid choice: 'shortest'" in line["text"] for line in failure["evidence"])


def test_more_running_requests_serve_more(swept):
    speed = {}
    for trial in served(swept):
        limit = trial["config"]["axes"]["args.max_running_requests"]
        speed[limit] = trial["metrics"]["short/c8"]["output_throughput"]
    assert speed[8] > speed[2]


def test_sglangs_own_client_counts_as_ours_does(swept):
    for trial in served(swept):
        ours, theirs = trial["metrics"]["short/c8"], trial["metrics"]["theirs/c8"]
        for name in ("completed", "total_input_tokens", "total_output_tokens", "failed"):
            assert theirs[name] == ours[name], name


def test_conversations_find_their_beginning_in_the_cache(swept):
    for trial in served(swept):
        talk = trial["metrics"]["talk/c2"]
        assert (talk["completed"], talk["total_output_tokens"]) == (8, 64)
        assert 0 < talk["cached_tokens"] < talk["total_input_tokens"]


def test_no_server_is_left(swept):
    of_this_sweep = f"{MARK}={swept['sweep_id']}/".encode()
    assert [p.name for p in Path("/proc").iterdir() if of_this_sweep in _environment(p)] == []


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
