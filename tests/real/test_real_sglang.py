"""The same flow against the real SGLang, unmodified, on this machine's CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
ROOT = PROJECT / ".real-sglang"

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def swept() -> dict:
    """Run the real demo once; the report for machines."""
    demo = [sys.executable, str(PROJECT / "scripts/real_sglang/demo.py"), "--root", str(ROOT)]
    done = subprocess.run(demo, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    command = [str(Path(sys.executable).with_name("sglang-sweep")), "report", "latest", "--json"]
    environment = {**os.environ, "SGLANG_SWEEP_CONFIG": str(ROOT / "sglang-sweep.toml")}
    report = subprocess.run(command, env=environment, capture_output=True, check=True)
    return json.loads(report.stdout)


@pytest.fixture(scope="module")
def checked(swept, tmp_path_factory) -> dict:
    """One more server: our client and SGLang's own in turn, and conversations; the metrics."""
    short = {"input_len": 64, "output_len": 16, "concurrency": 4, "requests": 16}
    talk = {"dataset": "conversations", "turns": 2, "input_len": 20, "output_len": 8}
    workloads = [
        {"name": "ours", **short},
        {"name": "theirs", "engine": "sglang", **short},
        {"name": "talk", "concurrency": 2, "requests": 8, **talk},
    ]
    changes = {
        "axes": {},
        "exclude": [],
        "baseline": {},
        "workloads": workloads,
        "objective.workload": "ours",
        "objective.concurrency": 4,
        "server.model_path": str(ROOT / "models" / "tiny"),
    }
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={dumped(value)}")]
    command = [str(Path(sys.executable).with_name("sglang-sweep"))]
    environment = {**os.environ, "SGLANG_SWEEP_CONFIG": str(ROOT / "sglang-sweep.toml")}
    run = [*command, "run", str(PROJECT / "examples" / "cpu-tiny.yaml"), *sets]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: suspect, on a busy machine
    report = [*command, "report", "latest", "--json"]
    said = subprocess.run(report, env=environment, capture_output=True, check=True).stdout
    (trial,) = json.loads(said)["trials"]
    return trial["metrics"]


def dumped(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def served(report: dict) -> list[dict]:
    return [t for t in report["trials"] if t["verdict"] in ("measured", "suspect")]


def test_four_configurations_serve_and_are_measured(swept):
    assert len(served(swept)) == 4
    for trial in served(swept):
        for metrics in trial["metrics"].values():
            assert metrics["completed"] == 64
            assert metrics["total_output_tokens"] == 64 * 64
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
        axes = trial["config"]["axes"]
        speed[axes["args.max_running_requests"], axes["args.disable_radix_cache"]] = trial[
            "metrics"
        ]["short/c8"]["output_throughput"]
    assert speed[8, False] > speed[2, False]


def test_sglangs_own_client_counts_as_ours_does(checked):
    for name in ("completed", "total_input_tokens", "total_output_tokens", "failed"):
        assert checked["theirs/c4"][name] == checked["ours/c4"][name], name


def test_conversations_find_their_beginning_in_the_cache(checked):
    talk = checked["talk/c2"]
    assert (talk["completed"], talk["total_output_tokens"]) == (8, 64)
    assert 0 < talk["cached_tokens"] < talk["total_input_tokens"]


def test_no_server_is_left():
    marks = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _serves(p)]
    assert marks == []


def _serves(process: Path) -> bool:
    try:
        return str(ROOT / "venv").encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False
