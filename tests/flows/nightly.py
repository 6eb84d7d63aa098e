"""Deployed sweeps that a real worker runs."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

PREFECT = str(Path(sys.executable).parent / "prefect")
PROJECT = Path(__file__).resolve().parents[2]
WORKER_ENVIRONMENT = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_RUNNER_POLL_FREQUENCY": "1"}


def until(condition, timeout_s: float = 150.0):
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
        """What Prefect's own command prints; it must succeed."""
        done = self.prefect(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def watched(self, **parameters: object) -> int:
        """Run the ad hoc deployment as a person does who waits for its end: the exit status."""
        pairs = [part for name, value in parameters.items() for part in ("-p", f"{name}={value}")]
        return self.prefect("deployment", "run", "sweep/sweep", *pairs, "--watch").returncode

    def prefect(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run Prefect's own command in the project's folder."""
        return subprocess.run(
            [PREFECT, *words],
            env=self.bed.environment,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def newest(self, name: str) -> dict:
        """The newest flow run whose name contains this."""
        chosen = {"flow_runs": {"name": {"like_": name}}, "sort": "START_TIME_DESC", "limit": 1}
        return self.post("flow_runs/filter", chosen)[0]

    def read(self, path: str) -> dict:
        return self._answer("GET", path, None)

    def post(self, path: str, content: dict) -> list | dict:
        return self._answer("POST", path, content)

    def _answer(self, method: str, path: str, content: dict | None) -> Any:
        """The API's answer; while its database is busy it says 503, which means: once more."""
        for _ in range(20):
            found = httpx.request(method, f"{self.api}/{path}", json=content, timeout=60)
            if found.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            time.sleep(0.5)
        return found.raise_for_status().json()

    def start(self, name: str = "sweep/sweep", **parameters: object) -> str:
        """Start a deployment, if not said otherwise the ad hoc one; the flow run's id."""
        deployment = self.read(f"deployments/name/{name}")["id"]
        run = self.post(f"deployments/{deployment}/create_flow_run", {"parameters": parameters})
        return run["id"]

    def state(self, run: str) -> str:
        return self.read(f"flow_runs/{run}")["state"]["name"]

    def trial_states(self, run: str) -> list[str]:
        """The kinds of state of a run's trials."""
        chosen = {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}}
        return [trial["state_type"] for trial in self.post("flow_runs/filter", chosen)]

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
