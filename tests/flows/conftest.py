"""A real Prefect server for the session, and simulated hosts to sweep on."""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import orjson
import pytest
from ruamel.yaml import YAML

from tests.flows.nightly import PREFECT, WORKER_ENVIRONMENT, Nightly
from tests.ports import first_port, free_port
from tests.scheduling import DEPLOYED

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

# Launches are quick, requests are not: their times must stand out from the lateness of a machine
# that runs several tests at once, or the verdict on them is rightly `suspect`.
FAST = """
time_scale = 0.6
launch_time_scale = 0.002
"""


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of the tests, for all its processes."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    base = tmp_path_factory.getbasetemp()
    return base if alone else base.parent


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other test process out of a folder."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def prefect_database(shared: Path) -> Path:
    """An empty database of Prefect's, made once for all test processes: that takes 25 s of CPU."""
    home = shared / "prefect-empty"
    made, database = home / "made", home / "prefect.db"
    with locked(home):
        if not made.exists():
            command = [str(BIN / "prefect"), "server", "database", "upgrade", "--yes"]
            environment = {**os.environ, "PREFECT_HOME": str(home)}
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            # Whatever is still in the write-ahead log goes into the file that is copied.
            with closing(sqlite3.connect(database)) as whole:
                whole.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            made.touch()
    return database


def prefect_home(home: Path, database: Path) -> Path:
    """A home of Prefect's with a database that is ready."""
    home.mkdir()
    shutil.copy(database, home / "prefect.db")
    return home


@pytest.fixture(scope="session")
def prefect_api(shared: Path, prefect_database: Path) -> Iterator[dict[str, str]]:
    """The environment that points to a Prefect server which all test processes share.

    The first starts it, the last ends it: an idle one takes a fifth of a core. Nothing is deployed
    there, so what looks after deployments is switched off.
    """
    folder = shared / "prefect-shared"
    users = folder / "users"
    with locked(folder):
        count, pid, port = _read(users) or (0, *_started(folder / "home", prefect_database, _FEW))
        _write(users, count + 1, pid, port)
    try:
        yield _pointing_to(folder / "home", port)
    finally:
        with locked(folder):
            count, pid, port = _read(users)
            if count == 1:
                os.killpg(pid, signal.SIGTERM)
                users.unlink()
            else:
                _write(users, count - 1, pid, port)


@pytest.fixture(scope="session")
def own_prefect_api(
    tmp_path_factory: pytest.TempPathFactory, prefect_database: Path
) -> Iterator[dict[str, str]]:
    """The environment that points to a Prefect server with deployments, limits and automations."""
    home = tmp_path_factory.mktemp("prefect") / "home"
    pid, port = _started(home, prefect_database, {})
    try:
        yield _pointing_to(home, port)
    finally:
        os.killpg(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


_FEW = {
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in (
        "CANCELLATION_CLEANUP",
        "CLEANUP_RECONCILER",
        "FOREMAN",
        "LATE_RUNS",
        "PAUSE_EXPIRATIONS",
        "REPOSSESSOR",
        "SCHEDULER",
        "TRIGGERS",
    )
}


def _read(users: Path) -> tuple[int, ...]:
    return tuple(map(int, users.read_text().split())) if users.exists() else ()


def _write(users: Path, *numbers: int) -> None:
    users.write_text(" ".join(map(str, numbers)))


def _pointing_to(home: Path, port: int) -> dict[str, str]:
    return {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }


def _started(home: Path, database: Path, settings: dict[str, str]) -> tuple[int, int]:
    """Start a Prefect server; its process and port once it answers."""
    port = free_port()
    environment = _pointing_to(prefect_home(home, database), port)
    command = [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(
        command,
        env={**os.environ, **environment, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _until_healthy(environment["PREFECT_API_URL"])
    server.returncode = 0  # whoever ends it knows its number alone
    return server.pid, port


def _until_healthy(url: str) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health").is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    pytest.fail("the Prefect server did not start within 180 s")


@dataclass(frozen=True)
class Bed:
    """A simulated host, a settings file that knows it, and the commands run against it."""

    folder: Path
    environment: dict[str, str]
    database: Path

    @property
    def store(self) -> Path:
        """Where results go."""
        return self.folder / "sweeps"

    def without_api(self) -> "Bed":
        """The same bed for somebody who has configured no Prefect API."""
        kept = {k: v for k, v in self.environment.items() if not k.startswith("PREFECT_")}
        home = prefect_home(self.folder / "prefect", self.database)
        return replace(self, environment={**kept, "PREFECT_HOME": str(home)})

    def sweep(self, **changes: object) -> Path:
        """Write a sweep file: a small grid, unless changed."""
        models = self.folder / "host" / "models"
        content = {
            "name": "small",
            "host": "simulated",
            "server": {"model_path": str(models / "kimi"), "args": {"tp": 8}},
            "axes": {"cuda_graph_max_bs": [128, 256]},
            "speculative": {"draft_model_path": str(models / "kimi-eagle3")},
            "workloads": [
                {
                    "name": "chat",
                    "input_len": 64,
                    "output_len": 64,
                    "concurrency": 1,
                    "requests": 4,
                }
            ],
            "timeouts": {"ready": "40s", "stall": "3s", "stop_grace": "5s"},
            **changes,
        }
        path = self.folder / "sweep.yaml"
        YAML().dump(content, path)
        return path

    def start(self, *words: object) -> "subprocess.Popen[str]":
        """Start a command in a session of its own, as a terminal would."""
        return subprocess.Popen(
            [str(BIN / "sglang-sweep"), *map(str, words)],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: object, timeout_s: float = 170) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        process = self.start(*words)
        out, _ = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(list(map(str, words)), process.returncode, out)

    def report(self, sweep_id: str = "latest") -> dict[str, object]:
        """A sweep's report for machines."""
        done = subprocess.run(
            [str(BIN / "sglang-sweep"), "report", sweep_id, "--json"],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            check=True,
        )
        return orjson.loads(done.stdout)

    def holders(self) -> list[str]:
        """The command lines of all processes that hold one of the pretend devices open."""
        devices = str(self.folder / "host" / "dev") + "/"
        return [
            (entry / "cmdline").read_text().replace("\0", " ")
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and any(_links(entry, devices))
        ]

    def marked(self) -> list[int]:
        """The processes of this bed's servers, by where their files lie."""
        ours = f"SIMULATOR_ROOT={self.folder / 'host'}".encode()
        mark = b"SGLANG_SWEEP_MARK="
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and ours in (env := _environ(entry)) and mark in env
        ]


def _links(process: Path, devices: str) -> Iterator[str]:
    try:
        for link in (process / "fd").iterdir():
            target = os.readlink(link)
            if target.startswith(devices):
                yield target
    except OSError:
        return


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def make_bed(request: pytest.FixtureRequest, tmp_path: Path, prefect_database: Path):
    """Make a simulated host that behaves as a scenario says."""
    own = request.path.name in DEPLOYED
    api: dict[str, str] = request.getfixturevalue("own_prefect_api" if own else "prefect_api")

    def make(scenario: str = "", lease: str = "15s", host_lines: str = "") -> Bed:
        (tmp_path / "scenario.toml").write_text(FAST + scenario)
        host = ["--root", str(tmp_path / "host"), "--scenario", str(tmp_path / "scenario.toml")]
        made = subprocess.run(
            [sys.executable, "-m", "simulator.host", *host],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        )
        config = tmp_path / "settings.toml"
        lines = f"[hosts.simulated]\nport = {first_port()}\n{host_lines}\n"
        table = made.stdout.replace("[hosts.simulated]\n", lines, 1)
        config.write_text(f'store = "{tmp_path / "sweeps"}"\nlease = "{lease}"\n{table}')
        environment = {**os.environ, **api, "SGLANG_SWEEP_CONFIG": str(config)}
        return Bed(tmp_path, environment, prefect_database)

    return make


@pytest.fixture
def start_worker() -> Iterator[Callable[[Bed], None]]:
    """Start one more worker that takes a bed's deployed runs."""
    workers: list[subprocess.Popen[bytes]] = []

    def start(bed: Bed) -> None:
        worker = subprocess.Popen(
            [PREFECT, "worker", "start", "--pool", "gpu-hosts"],
            env={**bed.environment, **WORKER_ENVIRONMENT},
            cwd=bed.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        workers.append(worker)

    yield start
    for worker in workers:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(60)


@pytest.fixture
def make_nightly(make_bed, start_worker) -> Callable[[str], Nightly]:
    """Make a bed that behaves as a scenario says, and a worker that runs its sweeps."""

    def make(scenario: str = "") -> Nightly:
        made = Nightly(make_bed(scenario))
        made.bed.run("setup")
        made.call("--no-prompt", "deploy", "--all")
        start_worker(made.bed)
        return made

    return make


@pytest.fixture
def nightly(make_nightly) -> Nightly:
    """A healthy host, and a worker that runs its sweeps."""
    return make_nightly()
