"""The nightly with a real Prefect server and a real worker: what is deployed, and how runs end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from flows.api import shown_or_bare
from tests.flows.nightly import Nightly, until
from tests.ports import free_port

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

OVER = ("Completed", "CompletedWithFailures", "NothingFeasible")
"""How a sweep ends that went on to its end; on a busy machine every trial may be suspect."""


def test_two_deployments_two_workers_and_a_person_never_meet_on_a_host(
    nightly: Nightly, start_worker
) -> None:
    bed = nightly.bed
    start_worker(bed)
    files = {name: bed.folder / f"{name}.yaml" for name in ("first", "second", "third")}
    for name, path in files.items():
        path.write_bytes(bed.sweep(name=name).read_bytes())
    first = nightly.start(sweep=str(files["first"]))
    until(bed.holders)
    second = nightly.start("sweep/nightly", sweep=str(files["second"]))
    bed.environment["SGLANG_SWEEP_LOCK_WAIT"] = "10m"
    third = bed.start("run", files["third"])
    # As if its heartbeats had not come through: it lives, and says so.
    nightly.post(
        f"flow_runs/{first}/set_state",
        {"state": {"type": "CRASHED", "message": "no heartbeat"}, "force": True},
    )
    until(lambda: nightly.state(first) != "Crashed")
    refused = nightly.start(
        "bench/bench",
        url=f"http://127.0.0.1:{free_port()}",
        workload={
            "name": "chat",
            "input_len": 8,
            "output_len": 8,
            "concurrency": [1],
            "requests": 2,
        },
    )
    assert nightly.ended(first) in OVER
    assert nightly.ended(second) in OVER
    out, _ = third.communicate(timeout=120)
    assert third.returncode == (1 if "NothingFeasible" in out else 0), out
    sweeps = sorted(
        (json.loads(path.read_text()) for path in bed.store.glob("*/sweep.json")),
        key=lambda sweep: sweep["started_at"],
    )
    assert sorted(sweep["sweep"]["name"] for sweep in sweeps) == ["first", "second", "third"]
    for earlier, later in pairwise(sweeps):
        assert earlier["ended_at"] <= later["started_at"]
    assert nightly.ended(refused) == "RequestsFailed"
    assert "requests failed" in nightly.read(f"flow_runs/{refused}")["state"]["message"]
    run = nightly.read(f"flow_runs/{first}")
    decided = "no best" if run["state"]["name"] == "NothingFeasible" else "best: "
    assert run["state"]["message"].startswith(decided)
    assert {"host:simulated", "model:kimi"} <= set(run["tags"])
    assert run["name"].startswith("first ")
    events = nightly.post("events/filter", {"filter": {"event": {"prefix": ["sglang-sweep."]}}})
    finished = [e for e in events["events"] if e["event"] == "sglang-sweep.sweep.finished"]
    told = finished[0]["payload"]["text"]
    assert "best: " in told or "no configuration can be recommended" in told
    nightly.call("deployment", "run", "validate/validate", "--param", "host=simulated", "--watch")
    assert json.loads(nightly.call("deployment", "inspect", "sweep/nightly", "--output", "json"))[
        "schedules"
    ]


def test_a_cancelled_run_and_a_killed_one_leave_no_process_and_a_true_state(
    nightly: Nightly,
) -> None:
    bed = nightly.bed
    load = {"name": "chat", "input_len": 64, "output_len": 500, "concurrency": 1, "requests": 400}
    file = str(bed.sweep(workloads=[load]))

    run = nightly.start(sweep=file)
    until(bed.holders)
    nightly.call("flow-run", "cancel", run)
    until(lambda: not bed.marked(), 90)
    assert nightly.ended(run) == "Cancelled"
    until(lambda: nightly.stored()["state"] == "cancelled")

    run = nightly.start(sweep=file)
    until(bed.holders)
    os.kill(nightly.process_of(run), signal.SIGKILL)
    until(lambda: not bed.marked(), 60)
    assert nightly.ended(run) == "Crashed"
    until(lambda: nightly.stored()["state"] == "crashed")
    until(lambda: nightly.trial_states(run) == ["CRASHED"])
    until(lambda: not (bed.folder / "host" / "run" / "lock.json").exists(), 90)


def test_setup_creates_once_and_alerts_reach_a_webhook(make_bed) -> None:
    bed = make_bed()
    refused = bed.run("setup", "--notify", "slack-webhook/nobody")
    assert refused.returncode == 2
    assert "no block 'slack-webhook/nobody'" in refused.stdout
    with receiver() as (url, received):
        bed.environment["WEBHOOK"] = url
        subprocess.run([sys.executable, "-c", MAKE_BLOCK], env=bed.environment, check=True)
        first = bed.run("setup", "--notify", "custom-webhook/nightly-test")
        assert first.returncode == 0, first.stdout
        again = bed.run("setup", "--notify", "custom-webhook/nightly-test").stdout
        done = {line.split()[0] for line in again.splitlines() if "warning" not in line}
        assert done == {"found"}, again
        assert "lease_storage" in again
        subprocess.run([sys.executable, "-c", EMIT], env=bed.environment, check=True)
        until(lambda: received, 60)
    assert received == ["nothing was measured: no route"]


MAKE_BLOCK = """
import os
from prefect.blocks.notifications import CustomWebhookNotificationBlock
CustomWebhookNotificationBlock(
    name="nightly", url=os.environ["WEBHOOK"], json_data={"text": "{{body}}"}
).save("nightly-test", overwrite=True)
"""

EMIT = """
from prefect.events.worker import EventsWorker
from flows.alerts import tell
from tasks.results.alerts import HOST_UNFIT, Alert
tell(Alert(HOST_UNFIT, "simulated", {"text": "nothing was measured: no route"}))
EventsWorker.instance().drain()
"""


@contextmanager
def receiver() -> Iterator[tuple[str, list[str]]]:
    """A webhook, and the texts that it was sent."""
    received: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.append(content["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", received
    finally:
        server.shutdown()
        server.server_close()


def test_a_sweep_outlives_the_api_that_it_reports_to(make_bed) -> None:
    bed = make_bed().without_api()
    bed.environment["PREFECT_CLIENT_MAX_RETRIES"] = "0"
    night = bed.start("run", bed.sweep(axes={"cuda_graph_max_bs": [128]}))
    until(bed.holders)
    servers = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and parent_of(entry) == night.pid and b"server" in command_of(entry)
    ]
    for server in servers:
        os.killpg(server, signal.SIGKILL)
    out, _ = night.communicate(timeout=180)
    assert servers
    assert "the Prefect API went away" in out
    assert "output tok/s" in out
    assert {t["verdict"] for t in bed.report()["trials"]} <= {"measured", "suspect"}, out


def parent_of(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_of(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def test_work_is_done_bare_where_no_api_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def shown() -> str:
        raise AssertionError("not without an API")

    async def bare() -> str:
        return "measured"

    async def answer(value: bool) -> bool:
        return value

    monkeypatch.setattr("flows.api.api_answers", lambda: answer(False))
    assert asyncio.run(shown_or_bare(shown, bare, lambda: None)) == "measured"

    async def breaks() -> str:
        raise httpx.ConnectError("gone")

    monkeypatch.setattr("flows.api.api_answers", lambda: answer(True))
    assert asyncio.run(shown_or_bare(breaks, bare, lambda: "stored")) == "stored"
    assert asyncio.run(shown_or_bare(breaks, bare, lambda: None)) == "measured"
