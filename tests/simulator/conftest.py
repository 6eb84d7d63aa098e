"""Start the simulator as a program, and make sure that nothing of it is left."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = "time_scale = 0.02\nlaunch_time_scale = 0.0\n"
READY = "The server is fired up and ready to roll!"


def marked(mark: str) -> list[int]:
    """Return the processes whose environment carries a mark, as an owner looks for its own."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if f"TEST_MARK={mark}".encode() in environment.split(b"\0"):
            found.append(int(entry))
    return found


def until(condition: Callable[[], object], what: str, patience_s: float = 20) -> None:
    deadline_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain for {what}"
        time.sleep(0.01)


@dataclass
class Served:
    """One launch of the simulator."""

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path
    mark: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def await_log(self, text: str) -> None:
        def said() -> bool:
            return text in self.log or self.process.poll() is not None

        until(said, text)
        assert text in self.log, self.log[-3000:]

    def await_exit(self) -> int:
        return self.process.wait(20)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.await_exit()

    def children(self) -> dict[str, int]:
        """Return the pids of the server's processes by their title, the server's own excepted."""
        titles = {}
        for pid in marked(self.mark):
            if pid != self.process.pid:
                title = Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0")
                titles[title.decode()] = pid
        return titles


@dataclass
class Simulator:
    """A pretend host for one test."""

    folder: Path
    started: list[Served] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "host"

    def program(self, *arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            **options,
        )

    def create_host(self, scenario: str = QUICK) -> dict[str, object]:
        path = self.folder / "scenario.toml"
        path.write_text(scenario)
        made = self.program(
            "simulator.host", "--root", str(self.root), "--scenario", str(path), "--json"
        )
        assert made.returncode == 0, made.stderr
        return dict(json.loads(made.stdout))

    def launch(
        self,
        *flags: str,
        scenario: str = QUICK,
        env: dict[str, str] | None = None,
        port: int | None = None,
        model: str | None = None,
    ) -> Served:
        """Start a server without waiting for anything."""
        if not self.root.exists():
            self.create_host(scenario)
        (self.folder / "scenario.toml").write_text(scenario)
        port, mark = port or free_port(), uuid.uuid4().hex
        log_path = self.folder / f"server-{len(self.started)}.log"
        environment = {
            **os.environ,
            "SIMULATOR_ROOT": str(self.root),
            "SIMULATOR_SCENARIO": str(self.folder / "scenario.toml"),
            "TEST_MARK": mark,
            "SPT_NOENV": "1",
            **(env or {}),
        }
        model = model or str(self.root / "models" / "kimi")
        command = ["-m", "simulator.launch_server", "--model-path", model, "--port", str(port)]
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command, "--tp", "8", *flags],
                cwd=REPOSITORY,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        served = Served(process, port, log_path, mark)
        self.started.append(served)
        return served

    def serve(self, *flags: str, **options: object) -> Served:
        """Start a server and wait until it says that it serves."""
        served = self.launch(*flags, **options)
        served.await_log(READY)
        return served

    def end(self) -> list[int]:
        """End what still runs; return what was left although its server had ended."""
        leftovers = []
        for served in self.started:
            if served.process.poll() is None:
                served.process.kill()
                served.process.wait()
            deadline_s = time.monotonic() + 5
            while (left := marked(served.mark)) and time.monotonic() < deadline_s:
                time.sleep(0.01)
            leftovers += left
        for pid in leftovers:
            os.kill(pid, signal.SIGKILL)
        return leftovers


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    simulator = Simulator(tmp_path)
    yield simulator
    assert simulator.end() == [], "processes of the simulator were left"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One healthy server for the tests that only ask."""
    simulator = Simulator(tmp_path_factory.mktemp("served"))
    yield simulator.serve("--enable-metrics", "--cuda-graph-max-bs", "128")
    assert simulator.end() == []


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=20) as client:
        yield client
