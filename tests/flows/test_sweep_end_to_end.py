"""Whole sweeps on a simulated host, through the command line, a real Prefect API and the store."""

import contextlib
import json
import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import httpx
import polars as pl
import pytest

from tests.hosts.processes import running

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

CUDNN = """
[[fault]]
kind = "cudnn-check"
"""
OOM = """
[[fault]]
kind = "oom-graph-capture"
when = {cuda_graph_max_bs = {min = 256}, speculative_num_steps = 5}
"""
GARBAGE = """
[[fault]]
kind = "garbage"
when = {cuda_graph_max_bs = 256, speculative_num_steps = 3}
speedup = 1.5
"""
NAN = """
[[fault]]
kind = "nan"
when = {cuda_graph_max_bs = 512, speculative_num_steps = 3}
"""


SERVED = ("measured", "suspect")
"""A trial that came to its end: on a busy machine the client's own delay makes it suspect."""


def status_of(report) -> int:
    """The exit status that goes with a report's verdicts: what is doubted is never best."""
    return 0 if any(trial["verdict"] == "measured" for trial in report["trials"]) else 1


def by_axes(report) -> dict[tuple, dict]:
    return {tuple(t["config"]["axes"].values()): t for t in report["trials"]}


def runs_of(environment, kind: str, name: str) -> list[dict]:
    """The flow or task runs whose name begins with `name`, as the Prefect API has them."""
    url = environment["PREFECT_API_URL"]
    query = {f"{kind}_runs": {"name": {"like_": name}}, "limit": 200}
    return httpx.post(f"{url}/{kind}_runs/filter", json=query).json()


def test_a_sweep_is_cured_pruned_refused_and_measured(make_bed):
    bed = make_bed(CUDNN + OOM + GARBAGE + NAN)
    sweep = bed.sweep(
        name="whole",
        axes={"cuda_graph_max_bs": [128, 256, 512], "speculative_steps": [0, 3, 5]},
        baseline={"cuda_graph_max_bs": 512},
        retry={"max_attempts": 2},
    )
    done = bed.run("run", sweep, timeout_s=160)
    assert done.returncode == 0, done.stdout
    report = bed.report()
    trials = by_axes(report)
    assert len(trials) == 9
    assert report["state"] == "completed_with_failures"

    baseline = trials[512, 0]
    assert baseline["verdict"] in SERVED
    assert [f["mode"] for f in baseline["failures"]] == ["cudnn-conv3d-check"]
    assert len(baseline["attempts"]) == 2
    assert baseline["remedies"][0]["env"] == {"SGLANG_DISABLE_CUDNN_CHECK": "1"}

    cured_from_the_start = trials[128, 0]
    assert len(cured_from_the_start["attempts"]) == 1
    assert cured_from_the_start["remedies"][0]["env"] == {"SGLANG_DISABLE_CUDNN_CHECK": "1"}

    assert trials[256, 5]["verdict"] == "pruned"
    assert {f["mode"] for f in trials[256, 5]["failures"]} == {"oom-cuda-graph-capture"}
    assert trials[512, 5]["verdict"] == "pruned"
    assert trials[512, 5]["attempts"] == [], "infeasibility spreads: no launch is wasted"

    assert trials[256, 3]["verdict"] == "incorrect"
    assert trials[512, 3]["verdict"] == "incorrect"
    assert report["best"]["trial_id"] == trials[128, 3]["trial_id"]
    assert "--cuda-graph-max-bs 128" in report["best"]["command"]
    assert "SGLANG_DISABLE_CUDNN_CHECK=1" in report["best"]["command"]
    assert bed.holders() == []
    assert bed.marked() == []

    states = {run["state"]["name"] for run in runs_of(bed.environment, "task", "launch")}
    assert {"LaunchFailed: cudnn-conv3d-check", "LaunchFailed: oom-cuda-graph-capture"} <= states
    ends = {
        run["name"]: run["state"]["name"]
        for run in runs_of(bed.environment, "flow", "cuda_graph_max_bs")
    }
    pruned = "cuda_graph_max_bs=256 speculative_steps=5 repeat=1"
    assert ends[pruned] == "Pruned: oom-cuda-graph-capture"
    assert "Incorrect" in ends.values()
    assert "Measured" in ends.values()
    [flow] = runs_of(bed.environment, "flow", "whole simulated")
    assert flow["state"]["name"] == "CompletedWithFailures"
    assert "2 incorrect, 2 pruned" in flow["state"]["message"]
    log = bed.store / report["sweep_id"] / "trials" / trials[256, 5]["trial_id"] / "attempt-1"
    assert "CUDA out of memory" in (log / "server.log").read_text()
    assert os.access(log / "cmd.sh", os.X_OK)
    assert_that_the_page_tells_all(bed, trials[256, 5]["trial_id"])
    assert_that_its_time_is_told(bed.store / report["sweep_id"] / "trials" / baseline["trial_id"])


def assert_that_its_time_is_told(trial: Path) -> None:
    """What each launch's time went on: the first failed, the second was measured."""
    failed, served = json.loads((trial / "trial.json").read_text())["attempts"]
    assert [failed["spells"][0]["doing"], failed["spells"][-1]["doing"]] == ["clean", "stop"]
    doing = [spell["doing"] for spell in served["spells"]]
    assert doing[0] == "clean"
    assert doing[-1] == "stop"
    assert doing.index("start") < doing.index("canary") < doing.index("load")
    assert all(spell["seconds"] >= 0 for spell in served["spells"])


def assert_that_the_page_tells_all(bed, trial_id: str) -> None:
    """The artifact of a trial whose two launches failed, as the UI shows the last one."""
    first, last = artifacts_of(bed.environment, f"launch-failed-{trial_id}")
    assert "retry: lower the memory fraction" in first
    for said in (
        "# oom-cuda-graph-capture\n",
        "pruned, the sweep goes on",
        "Exception: Capture cuda graph failed: CUDA out of memory",
        "Already in force in this launch:\n\n- switch the cuDNN check off",
        "- lower the memory fraction: ",
        "SGLANG_DISABLE_CUDNN_CHECK=1 \\\n",
        "--cuda-graph-max-bs 256 \\\n",
        "## Environment against the last launch that came up\n\nThe same.",
        "## GPUs\n",
        "## The software stack\n",
        "Received sigquit from a child process",
        f"trials/{trial_id}/attempt-2/server.log`",
    ):
        assert said in last, f"{said!r} is not on the page:\n{last}"


def artifacts_of(environment, key: str) -> list[str]:
    """The texts under one key, oldest first."""
    query = {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC"}
    found = httpx.post(f"{environment['PREFECT_API_URL']}/artifacts/filter", json=query).json()
    return [artifact["data"] for artifact in sorted(found, key=lambda one: one["created"])]


def test_repeats_are_interleaved_and_give_an_interval(make_bed):
    bed = make_bed()
    done = bed.run("run", bed.sweep(search={"repeats": 2}))
    assert done.returncode == 0, done.stdout
    report = bed.report()
    starts = sorted(
        (attempt["started_at"], trial["config"]["axes"]["cuda_graph_max_bs"], attempt["repeat"])
        for trial in report["trials"]
        for attempt in trial["attempts"]
    )
    assert [(size, repeat) for _, size, repeat in starts] == [
        (128, 1),
        (256, 1),
        (256, 2),
        (128, 2),
    ]
    assert report["best"]["objective"]["interval"] is not None
    picture, *_ = artifacts_of(bed.environment, "pareto-chat")
    assert picture.startswith("data:image/png;base64,")


def wait_for(condition, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)


def measured(bed) -> list[Path]:
    trials = bed.store.glob("*/trials/*/trial.json")
    return [path for path in trials if json.loads(path.read_bytes())["verdict"] in SERVED]


def test_ctrl_c_leaves_no_process_and_the_sweep_and_no_other_can_be_resumed(make_bed):
    bed = make_bed()
    axes = {"cuda_graph_max_bs": [128, 160, 192]}
    process = bed.start("run", bed.sweep(axes=axes))
    wait_for(lambda: measured(bed))
    wait_for(bed.holders)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "--resume" in out
    assert bed.holders() == []
    assert bed.marked() == []
    report = bed.report()
    assert report["state"] == "cancelled"
    finished = {t["trial_id"]: t for t in report["trials"] if t["verdict"] in SERVED}
    assert finished

    resumed = bed.run("run", "--resume", report["sweep_id"])
    assert resumed.returncode == status_of(bed.report()), resumed.stdout
    after = bed.report()
    assert after["sweep_id"] == report["sweep_id"]
    assert [t["verdict"] in SERVED for t in after["trials"]] == [True] * 3
    for trial in after["trials"]:
        if trial["trial_id"] in finished:
            assert trial["attempts"] == finished[trial["trial_id"]]["attempts"]

    other = bed.sweep(axes=axes, server={"model_path": "/elsewhere", "args": {"tp": 8}})
    refused = bed.run("run", other, "--resume", "latest")
    assert refused.returncode == 2
    assert "server changed" in refused.stdout


def test_sigterm_cleans_up_as_ctrl_c_does(make_bed):
    bed = make_bed()
    process = bed.start("run", bed.sweep())
    wait_for(bed.holders)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "Traceback" not in out
    assert bed.marked() == []


def test_ctrl_c_while_a_server_is_being_stopped_keeps_its_measurement(make_bed):
    bed = make_bed('[[fault]]\nkind = "leaky-child"\n', lease="60s")
    timeouts = {"ready": "40s", "stall": "10s", "stop_grace": "6s"}
    process = bed.start("run", bed.sweep(timeouts=timeouts))
    wait_for(lambda: list(bed.store.glob("*/trials/*/attempt-1/gpu.parquet")))
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert bed.holders() == []
    assert any(trial["verdict"] in SERVED for trial in bed.report()["trials"])


def test_a_server_that_hangs_under_load_is_not_waited_on(make_bed):
    bed = make_bed()
    workload = {
        "name": "chat",
        "input_len": 64,
        "output_len": 512,
        "concurrency": 1,
        "requests": 64,
    }
    process = bed.start("run", bed.sweep(axes={}, workloads=[workload], retry={"max_attempts": 1}))
    wait_for(lambda: requests_served(bed) > 10)
    for pid in bed.marked():
        os.kill(pid, signal.SIGSTOP)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1, out
    [trial] = bed.report()["trials"]
    assert trial["verdict"] == "pruned"
    assert "hung" in trial["reason"] or trial["failures"]
    assert bed.marked() == []


def requests_served(bed) -> int:
    logs = (bed.folder / "host" / "run" / "launches").glob("*/*/*/server.log")
    return sum(log.read_text().count('"POST /generate') for log in logs)


def test_nobody_reading_on_does_not_end_the_sweep(make_bed):
    bed = make_bed()
    process = bed.start("run", bed.sweep(axes={}))
    process.stdout.readline()
    process.stdout.close()
    process.wait(150)
    assert [t["verdict"] in SERVED for t in bed.report()["trials"]] == [True]


def test_a_killed_run_ends_its_server_by_the_lease_and_frees_the_host(make_bed):
    bed = make_bed(lease="2s")
    process = bed.start("run", bed.sweep())
    wait_for(bed.holders)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not bed.marked(), timeout_s=20)
    assert bed.holders() == []
    done = bed.run("run", bed.sweep(axes={}))
    assert done.returncode == status_of(bed.report()), done.stdout
    assert [trial["verdict"] in SERVED for trial in bed.report()["trials"]] == [True]


def test_two_sweeps_never_share_a_host(make_bed):
    bed = make_bed()
    first = bed.start("run", bed.sweep(search={"repeats": 3}))
    wait_for(bed.holders)
    second = bed.run("run", bed.sweep())
    os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=120)
    assert second.returncode == 3
    assert "held by sweep small" in second.stdout
    assert "since" in second.stdout
    assert len(list(bed.store.glob("*/sweep.json"))) == 1, "the second began nothing"


ABI = """
[[fault]]
kind = "abi-undefined-symbol"
when = {{stack = {stack}}}
"""


def test_a_broken_stack_is_known_before_the_launch_and_the_budget_ends_the_launches(make_bed):
    """The next stack is taken; and the end of the budget is not that of the report."""
    bed = make_bed(ABI.format(stack='"cu130"'))
    done = bed.run("run", bed.sweep(search={"budget": "1s"}))
    assert done.returncode == status_of(bed.report()), done.stdout
    launched, pending = sorted(bed.report()["trials"], key=lambda trial: -len(trial["attempts"]))
    assert launched["verdict"] in SERVED
    assert [attempt["stack"].split("/")[-3] for attempt in launched["attempts"]] == ["cu128"]
    assert (pending["verdict"], pending["attempts"]) == ("pending", [])


def test_no_fit_stack_launches_nothing_and_needs_a_person(make_bed):
    bed = make_bed(ABI.format(stack='["cu130", "cu128"]'))
    done = bed.run("run", bed.sweep())
    assert done.returncode == 3, done.stdout
    assert "no stack can serve" in done.stdout
    assert "check_implementation" in done.stdout
    report = bed.report()
    assert report["state"] == "failed"
    assert all(trial["attempts"] == [] for trial in report["trials"])


ENDS = """
[[fault]]
kind = "death-mid-load"
after_requests = 3
when = {cuda_graph_max_bs = 160}
[[fault]]
kind = "silent-kill"
when = {cuda_graph_max_bs = 256}
"""
HANG = """
[[fault]]
kind = "nccl-hang"
when = {cuda_graph_max_bs = 256}
"""


def test_servers_that_die_are_pruned_under_their_names(make_bed):
    bed = make_bed(ENDS)
    axes = {"cuda_graph_max_bs": [128, 160, 256]}
    done = bed.run("run", bed.sweep(axes=axes, retry={"max_attempts": 2}))
    assert done.returncode == status_of(bed.report()), done.stdout
    trials = by_axes(bed.report())
    assert trials[(128,)]["verdict"] in SERVED, done.stdout
    for size, mode in ((160, "illegal-memory-access"), (256, "scheduler-died-silently")):
        assert trials[(size,)]["verdict"] == "pruned"
        assert {failure["mode"] for failure in trials[(size,)]["failures"]} == {mode}
    assert bed.marked() == []


def test_a_hang_of_the_hardware_stops_the_sweep(make_bed):
    bed = make_bed(HANG)
    done = bed.run("run", bed.sweep(retry={"max_attempts": 2}))
    assert done.returncode == 3, done.stdout
    trials = by_axes(bed.report())
    assert trials[(128,)]["verdict"] in SERVED, done.stdout
    assert trials[(256,)]["verdict"] == "stopped"
    assert {failure["mode"] for failure in trials[(256,)]["failures"]} == {"hang-nccl-init"}
    assert bed.marked() == []


def test_who_holds_the_gpus_is_ended_before_a_launch_and_stands_in_its_trial(make_bed):
    """A stranger before the first, and before the next a child that outlived its parent."""
    early = '[[fault]]\nkind = "health-early"\nseconds = 1\n'
    bed = make_bed('[[fault]]\nkind = "leaky-child"\n' + early)
    hold = "import sys, time; file = open(sys.argv[1]); print('there'); time.sleep(1000)"
    with running(hold, bed.folder / "host" / "dev" / "nvidia0") as holder:
        done = bed.run("run", bed.sweep())
        assert holder.wait(1) == -signal.SIGTERM
    assert done.returncode == status_of(bed.report()), done.stdout
    assert bed.holders() == []
    assert f"ended to free the GPUs: pid {holder.pid}" in " ".join(done.stdout.split())
    first = by_axes(bed.report())[(128,)]["trial_id"]
    (record,) = bed.store.glob(f"*/trials/{first}/trial.json")
    (ended,) = json.loads(record.read_text())["attempts"][0]["ended"]
    assert ended["pid"] == holder.pid
    assert ended["reason"] == "holds the GPUs of a dedicated host"


SLOW = """
[[fault]]
kind = "slow-start"
phase = "import"
seconds = 2000
when = {cuda_graph_max_bs = 256}
"""


def test_a_stolen_port_and_a_slow_start_are_cured(make_bed):
    """Another server's answer isn't taken for ours; a start of 4 s outlasts a patience of 3."""
    bed = make_bed('[[fault]]\nkind = "port-taken"\nattempts = 1\n' + SLOW)
    done = bed.run("run", bed.sweep(retry={"max_attempts": 2}))
    assert done.returncode == status_of(bed.report()), done.stdout
    trials = by_axes(bed.report())
    for size, mode in ((128, "port-in-use-http"), (256, "startup-timeout-slow-import")):
        trial = trials[(size,)]
        assert [failure["mode"] for failure in trial["failures"]] == [mode]
        assert trial["verdict"] in SERVED


def prefect_processes(bed) -> list[int]:
    home = f"PREFECT_HOME={bed.folder / 'prefect'}".encode()
    entries = (p for p in Path("/proc").iterdir() if p.name.isdigit())
    return [int(p.name) for p in entries if home in read(p / "environ")]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_run_brings_its_own_prefect_api_and_takes_it_away(make_bed):
    bed = make_bed().without_api()
    process = bed.start("run", bed.sweep())
    wait_for(bed.holders)
    servers = [p for p in prefect_processes(bed) if b"server" in read(Path(f"/proc/{p}/cmdline"))]
    assert len(servers) >= 1
    assert not any(b"uvicorn" in read(Path(f"/proc/{p}/cmdline")) for p in servers), (
        "Prefect's own temporary server runs beside ours: it would outlive us"
    )
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    wait_for(lambda: prefect_processes(bed) == [], timeout_s=10)
    assert bed.marked() == []
    with closing(sqlite3.connect(bed.folder / "prefect" / "prefect.db")) as kept:
        tasks = kept.execute("select name, state_name from task_run").fetchall()
        runs = dict(kept.execute("select name, state_name from flow_run").fetchall())
    assert ("validate simulated", "Completed") in tasks, "to be seen later, with its tasks"
    assert "Running" not in runs.values()


def test_what_cannot_be_run_is_refused_before_anything_starts(make_bed):
    bed = make_bed().without_api()
    for words, said in [
        (("run", bed.sweep(host="simulatde")), "did you mean 'simulated'"),
        (("run", "--resume", "nonexistent"), "no sweep in this store yet"),
    ]:
        done = bed.run(*words)
        assert done.returncode == 2, done.stdout
        assert said in done.stdout
    used = {path.name for path in (bed.folder / "prefect").iterdir()} - {"prefect.db"}
    assert not used, "Prefect's server was started"


CHECKER = """
import json, sys, urllib.request

flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
count = int(flags["--num-prompts"])
body = {"text": "a", "sampling_params": {"max_new_tokens": int(flags["--random-output-len"])}}
for _ in range(count):
    urllib.request.urlopen(
        urllib.request.Request(
            flags["--base-url"] + "/generate",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
    ).read()
with open(flags["--output-file"], "w") as out:
    json.dump({"completed": count, "duration": 2.0, "output_throughput": 123.0}, out)
"""


def test_a_workload_is_cross_checked_by_the_stacks_own_client(make_bed):
    bed = make_bed()
    for package in (bed.folder / "host" / "stacks").rglob("sglang/__init__.py"):
        package.with_name("bench_serving.py").write_text(CHECKER)
    chat = {"name": "chat", "input_len": 8, "output_len": 8, "concurrency": 1, "requests": 2}
    check = {**chat, "name": "check", "engine": "sglang"}
    objective = {"metric": "output_throughput", "workload": "chat"}
    sweep = bed.sweep(axes={}, search={"repeats": 1}, workloads=[chat, check], objective=objective)
    done = bed.run("run", sweep)
    assert done.returncode == status_of(bed.report()), done.stdout
    [trial] = bed.report()["trials"]
    assert trial["metrics"]["check/c1"]["completed"] == 2
    assert trial["metrics"]["check/c1"]["output_throughput"] == 123.0
    assert trial["metrics"]["chat/c1"]["output_throughput"] != 123.0
    assert bed.marked() == []


def test_a_load_that_was_disturbed_is_driven_once_more_on_the_same_server(make_bed):
    bed = make_bed()
    chat = {"name": "chat", "input_len": 8, "output_len": 64, "concurrency": 1, "requests": 2}
    process = bed.start("run", bed.sweep(axes={}, baseline={}, workloads=[chat]))
    told = Event()

    def keep_it_from_reading() -> None:
        while not told.wait(0.2):
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in loading(bed):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(0.2)

    with ThreadPoolExecutor(1) as pool:
        thief = pool.submit(keep_it_from_reading)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "once more" in line:
                told.set()
        told.set()
        thief.result()
        process.stdout.close()
    assert process.wait() == status_of(bed.report()), "".join(lines)
    [trial] = bed.report()["trials"]
    assert len(trial["attempts"]) == 1
    [record] = bed.store.glob("*/trials/*/trial.json")
    [level] = json.loads(record.read_text())["levels"]
    assert "kept from reading" in level["client"]["again_since"]
    assert level["metrics"]["completed"] == 2
    requests = pl.read_parquet(record.parent / "requests.parquet")
    assert requests.filter(~pl.col("warmup")).height == 2


def loading(bed) -> list[int]:
    """The processes that send a bed's load."""
    ours = str(bed.folder).encode()
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and ours in read(entry / "environ")
        if b"capture.program" in read(entry / "cmdline")
    ]


def test_the_largest_load_within_the_slo_is_found_on_one_launch(make_bed):
    bed = make_bed()
    searched = {
        "name": "most",
        "input_len": 64,
        "output_len": 32,
        "requests": 8,
        "slo": {"e2e_ms": 60000},
        "largest": {"of": "concurrency", "low": 1, "high": 8, "levels": 3},
    }
    sweep = bed.sweep(
        axes={}, baseline={}, workloads=[searched], objective={"metric": "largest_concurrency"}
    )
    done = bed.run("run", sweep)
    assert done.returncode == 0, done.stdout
    (only,) = bed.report()["trials"]
    assert len(only["attempts"]) == 1
    assert list(only["metrics"]) == ["most/c1", "most/c8", "most/slo"]
    assert only["metrics"]["most/slo"]["largest_concurrency"] == 8
    assert bed.report()["best"]["objective"]["mean"] == 8
