"""The nightly with a real Prefect server and a real worker: what is deployed, and how runs end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from flows.api import shown_or_bare

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

PREFECT = str(Path(sys.executable).parent / "prefect")
PROJECT = Path(__file__).resolve().parents[2]
WORKER_ENVIRONMENT = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_RUNNER_POLL_FREQUENCY": "1"}


def until(condition, timeout_s: float = 90.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.2)
    return found


class Nightly:
    """A bed whose sweeps a worker runs."""

    def __init__(self, bed) -> None:
        self.bed = bed
        self.api = bed.environment["PREFECT_API_URL"]

    def call(self, *words: str) -> str:
        done = subprocess.run(
            [PREFECT, *words],
            env=self.bed.environment,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def read(self, path: str) -> dict:
        return httpx.get(f"{self.api}/{path}", timeout=60).raise_for_status().json()

    def post(self, path: str, content: dict) -> list | dict:
        return httpx.post(f"{self.api}/{path}", json=content, timeout=60).raise_for_status().json()

    def start(self, **parameters: object) -> str:
        """Start the ad hoc deployment; the flow run's id."""
        deployment = self.read("deployments/name/sweep/sweep")["id"]
        run = self.post(f"deployments/{deployment}/create_flow_run", {"parameters": parameters})
        return run["id"]

    def state(self, run: str) -> str:
        return self.read(f"flow_runs/{run}")["state"]["name"]

    def ended(self, run: str) -> str:
        """The name of a run's final state."""
        final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
        until(lambda: self.read(f"flow_runs/{run}")["state_type"] in final, 200)
        return self.state(run)

    def process_of(self, run: str) -> int:
        """The process that runs a flow run."""
        wanted = f"PREFECT__FLOW_RUN_ID={run}".encode()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
            except OSError:
                continue
        raise AssertionError(f"no process runs {run}")

    def stored(self) -> dict:
        """The newest sweep's record."""
        newest = max(self.bed.store.glob("*/sweep.json"))
        return json.loads(newest.read_text())


@pytest.fixture
def nightly(make_bed) -> Iterator[Nightly]:
    made = Nightly(make_bed())
    made.bed.run("setup")
    made.call("--no-prompt", "deploy", "--all")
    worker = subprocess.Popen(
        [PREFECT, "worker", "start", "--pool", "gpu-hosts"],
        env={**made.bed.environment, **WORKER_ENVIRONMENT},
        cwd=made.bed.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield made
    finally:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(60)


def test_two_deployed_sweeps_of_one_host_queue_up_and_tell_how_they_ended(nightly: Nightly) -> None:
    bed = nightly.bed
    first = nightly.start(sweep=str(bed.sweep(name="first")))
    content = bed.sweep(name="second").read_text()
    second_file = bed.folder / "second.yaml"
    second_file.write_text(content)
    second = nightly.start(sweep=str(second_file))
    bed.sweep(name="first")
    assert nightly.ended(first) in ("Completed", "CompletedWithFailures")
    assert nightly.ended(second) in ("Completed", "CompletedWithFailures")
    sweeps = sorted(
        (json.loads(path.read_text()) for path in bed.store.glob("*/sweep.json")),
        key=lambda sweep: sweep["started_at"],
    )
    assert sorted(sweep["sweep"]["name"] for sweep in sweeps) == ["first", "second"]
    assert sweeps[0]["ended_at"] <= sweeps[1]["started_at"]
    run = nightly.read(f"flow_runs/{first}")
    assert {"host:simulated", "model:kimi"} <= set(run["tags"])
    assert run["name"].startswith("first ")
    events = nightly.post("events/filter", {"filter": {"event": {"prefix": ["sglang-sweep."]}}})
    finished = [e for e in events["events"] if e["event"] == "sglang-sweep.sweep.finished"]
    assert "best: " in finished[0]["payload"]["text"]
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
    until(lambda: not bed.marked(), 30)
    assert nightly.ended(run) == "Cancelled"
    until(lambda: nightly.stored()["state"] == "cancelled")

    run = nightly.start(sweep=file)
    until(bed.holders)
    os.kill(nightly.process_of(run), signal.SIGKILL)
    until(lambda: not bed.marked(), 60)
    assert nightly.ended(run) == "Crashed"
    until(lambda: nightly.stored()["state"] == "crashed")
    until(lambda: not (bed.folder / "host" / "run" / "lock.json").exists(), 30)


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
        assert "PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30" in again
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
    bed = make_bed()
    del bed.environment["PREFECT_API_URL"]
    bed.environment["PREFECT_HOME"] = str(bed.folder / "prefect")
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
