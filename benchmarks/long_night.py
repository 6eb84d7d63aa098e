"""What a very long sweep leaves behind in memory: 300 trials through a real server and worker.

    python -m benchmarks.long_night [--trials 300] [--every 50]

Starts a Prefect server and a worker of its own, runs a sweep of that many trials on the simulated
host, whose launches take no time, and prints the memory of server, worker and flow at every
fiftieth trial; then how long the API takes to answer what the page of that run asks for.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from ruamel.yaml import YAML

BIN = Path(sys.executable).parent
PROJECT = Path(__file__).resolve().parents[1]
PORT = 4391
API = f"http://127.0.0.1:{PORT}/api"
SCENARIO = "time_scale = 0.05\nlaunch_time_scale = 0.0005\n"


def environment(folder: Path) -> dict[str, str]:
    """Variables that keep Prefect's files and ours in a folder."""
    return {
        **os.environ,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": API,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "SGLANG_SWEEP_CONFIG": str(folder / "settings.toml"),
    }


def make_host(folder: Path) -> None:
    """Make the simulated host and the settings that know it."""
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO)
    made = subprocess.run(
        [sys.executable, "-m", "simulator.host", "--root", folder / "host", "--scenario", scenario],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "settings.toml").write_text(f'store = "{folder / "sweeps"}"\n{made.stdout}')


def write_sweep(folder: Path, trials: int) -> Path:
    """Write a sweep with one axis of so many values."""
    path = folder / "long.yaml"
    load = {"name": "chat", "input_len": 16, "output_len": 8, "concurrency": 1, "requests": 2}
    content = {
        "name": "long",
        "host": "simulated",
        "server": {"model_path": str(folder / "host" / "models" / "kimi"), "args": {"tp": 8}},
        "axes": {"cuda_graph_max_bs": list(range(1, trials + 1))},
        "workloads": [load],
    }
    YAML().dump(content, path)
    return path


@contextmanager
def running(command: list[str], env: Mapping[str, str], cwd: Path) -> Iterator[int]:
    """Run a command in the background; gives its pid."""
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def resident_mb(pid: int | None) -> float:
    """Resident memory of a process, MB; 0 where it is gone."""
    with contextlib.suppress(OSError, StopIteration):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        line = next(line for line in status if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024
    return 0.0


def flow_process(run: str) -> int | None:
    """The process that runs a flow run."""
    wanted = f"PREFECT__FLOW_RUN_ID={run}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
    return None


def watch(run: str, store: Path, pids: Mapping[str, int], trials: int, every: int) -> None:
    """Print the memory at every so many stored trials, and the growth after the first of them."""
    print("trials " + "".join(f"{name:>14}" for name in (*pids, "flow")) + f"{'seconds':>10}")
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    due, began = every, time.monotonic()
    while due <= trials:
        state = httpx.get(f"{API}/flow_runs/{run}", timeout=60).json()["state"]
        done = len(list(store.glob("*/trials/*/trial.json")))
        if done >= due:
            found = {**pids, "flow": flow_process(run)}
            last = {name: resident_mb(pid) for name, pid in found.items()}
            first = first or last
            row = "".join(f"{mb:11.0f} MB" for mb in last.values())
            print(f"{done:6} {row}{time.monotonic() - began:10.0f}", flush=True)
            due += every
        elif state["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            print(f"ended early: {state['name']}: {state['message']}")
            break
        time.sleep(1.0)
    growth = ", ".join(f"{name} {mb - first[name]:+.0f} MB" for name, mb in last.items())
    print(f"growth after the first {every}: {growth}")


def page_of(run: str) -> None:
    """Time what the page of a flow run asks the API for."""
    filtered = {"flow_runs": {"id": {"any_": [run]}}}
    asked = {
        "graph": lambda: httpx.get(f"{API}/flow_runs/{run}/graph-v2", timeout=60),
        "logs": lambda: httpx.post(
            f"{API}/logs/filter",
            json={"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200},
            timeout=60,
        ),
        "artifacts": lambda: httpx.post(f"{API}/artifacts/filter", json=filtered, timeout=60),
    }
    for name, ask in asked.items():
        began = time.perf_counter()
        answer = ask().raise_for_status()
        took_ms = (time.perf_counter() - began) * 1e3
        print(f"{name}: {took_ms:.0f} ms, {len(answer.content) / 1e3:.0f} kB")


def main() -> None:
    as_written = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="long-night-") as made:
        folder = Path(made)
        env = environment(folder)
        make_host(folder)
        prefect = str(BIN / "prefect")
        serve = [prefect, "server", "start", "--host", "127.0.0.1", "--port", str(PORT)]
        work = [prefect, "worker", "start", "--pool", "gpu-hosts"]
        with running(serve, env, folder) as server:
            while not _healthy():
                time.sleep(0.5)
            subprocess.run([BIN / "sglang-sweep", "setup"], env=env, cwd=PROJECT, check=True)
            deploy = [prefect, "--no-prompt", "deploy", "--name", "sweep"]
            subprocess.run(deploy, env=env, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
            with running(work, env, folder) as worker:
                deployment = httpx.get(f"{API}/deployments/name/sweep/sweep").json()["id"]
                sweep = str(write_sweep(folder, asked.trials))
                run = (
                    httpx.post(
                        f"{API}/deployments/{deployment}/create_flow_run",
                        json={"parameters": {"sweep": sweep}},
                    )
                    .raise_for_status()
                    .json()["id"]
                )
                pids = {"server": server, "worker": worker}
                watch(run, folder / "sweeps", pids, asked.trials, asked.every)
                page_of(run)


def _healthy() -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{API}/health").is_success
    return False


if __name__ == "__main__":
    main()
