"""Whole sweeps on the simulated host behind a real sshd, whose connection breaks at every stage."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.sshd import Home, Sshd, Wire

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

RUN = """
import asyncio, sys
from pathlib import Path
from rich.console import Console
from flows.commands.run import run_sweep
from settings.application import load
from settings.sweep_file import read_sweep

heard = open(sys.argv[2], "w", buffering=1)

import flows.commands.live as live
original = live.Board.hear

def hear(self, told):
    heard.write(f"{told.phase}\\n")
    original(self, told)

live.Board.hear = hear
settings, _ = load()
sys.exit(asyncio.run(run_sweep(read_sweep(Path(sys.argv[1])), None, settings, Console())))
"""


class Night:
    """A sweep over SSH that is under way, and what it does at the moment."""

    def __init__(self, bed, sshd: Sshd, wire: Wire) -> None:
        self.bed = bed
        self.sshd = sshd
        self.wire = wire
        self.heard = bed.folder / "heard"
        self.seen = 0

    def start(self, sweep: Path) -> None:
        self.heard.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(sweep), str(self.heard)],
            env=self.bed.environment,
            cwd=self.bed.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def await_phase(self, phase: str, timeout_s: float = 90) -> None:
        """Wait until the sweep comes to a phase, after the last one that was waited for."""
        deadline = time.monotonic() + timeout_s
        while True:
            lines = self.heard.read_text().splitlines()[self.seen :]
            found = [n for n, line in enumerate(lines) if line.startswith(phase)]
            if found:
                self.seen += found[0] + 1
                return
            assert time.monotonic() < deadline, f"never came to {phase}"
            if self.process.poll() is not None:
                pytest.fail(self.process.communicate()[0])
            time.sleep(0.01)

    def end(self) -> str:
        """The sweep's output, once it has ended; through a tunnel it may be merely suspect."""
        out, _ = self.process.communicate(timeout=200)
        assert self.process.returncode in (0, 1), out
        return out

    def break_and_mend(self, how: str) -> None:
        match how:
            case "kill":
                self.sshd.kill()
                time.sleep(1.5)
                self.sshd.start()
            case "stall":
                self.wire.stall()
                time.sleep(11.0)
                self.wire.mend()
            case "cut":
                self.wire.refusing = True
                self.wire.cut()
                time.sleep(1.5)
                self.wire.mend()


@pytest.fixture
def night(tmp_path: Path, make_bed) -> Iterator[Night]:
    home = Home(tmp_path / "home")
    sshd = Sshd(tmp_path / "sshd")
    sshd.let_in(home.key)
    sshd.start()
    wire = Wire(sshd.port)
    home.configure("gpu-box", wire.port)
    home.trust(sshd, wire.port)
    bed = make_bed(lease="60s", host_lines='address = "gpu-box"\nreconnect_patience = "30s"')
    bed.environment["HOME"] = str(home.folder)
    bed.environment.pop("SSH_AUTH_SOCK", None)
    night = Night(bed, sshd, wire)
    try:
        yield night
    finally:
        wire.close()
        sshd.kill()


def long_load(bed, place: str) -> Path:
    """One trial whose load takes a few seconds, so that it can be interrupted."""
    load = {"name": "chat", "input_len": 64, "output_len": 120, "concurrency": 1, "requests": 12}
    return bed.sweep(axes={"cuda_graph_max_bs": [128]}, workloads=[load], load={"from": place})


def check(night: Night, requests: int = 12) -> None:
    """One trial, measured once, with all its requests; the log whole, nothing left."""
    report = night.bed.report()
    [trial] = report["trials"]
    assert trial["verdict"] in ("measured", "suspect"), trial  # a busy machine is suspect
    [attempt] = trial["attempts"]
    assert attempt["ready_s"] > 0
    assert trial["metrics"]["chat/c1"]["completed"] == requests
    launches = list((night.bed.folder / "host" / "run" / "launches").glob("*/*/*"))
    assert len(launches) == 1, "one launch, and no second one"
    kept = list(night.bed.store.glob("*/trials/*/attempt-1/server.log"))
    assert [log.read_bytes() for log in kept] == [(launches[0] / "server.log").read_bytes()]
    assert night.bed.holders() == []
    assert night.bed.marked() == []


def test_a_sweep_over_ssh(night: Night) -> None:
    done = night.bed.run("run", night.bed.sweep(), timeout_s=170)
    assert done.returncode in (0, 1), done.stdout
    report = night.bed.report()
    assert all(trial["metrics"]["chat/c1"]["completed"] == 4 for trial in report["trials"])
    assert "through an SSH tunnel" not in done.stdout, "the load runs beside the server"
    assert night.bed.holders() == []
    assert night.sshd.logins == 1


STAGES = ["validate", "clean", "launch", "canary", "load chat", "stop"]


@pytest.mark.parametrize(
    ("how", "place", "stages"),
    [
        ("cut", "worker", STAGES),
        ("stall", "host", ["launch", "load chat"]),
        ("kill", "worker", ["launch", "load chat", "stop"]),
    ],
    ids=["cut", "stall", "kill"],
)
def test_a_break_at_any_stage_costs_nothing(
    night: Night, how: str, place: str, stages: list[str]
) -> None:
    night.start(long_load(night.bed, place))
    for stage in stages:
        night.await_phase(stage)
        time.sleep(0.7 if stage == "load chat" else 0.05)
        night.break_and_mend(how)
    out = night.end()
    check(night)
    if place == "worker":
        assert "through an SSH tunnel" in out


def test_a_connection_that_breaks_again_and_again(night: Night) -> None:
    night.start(long_load(night.bed, "host"))
    night.await_phase("validate")
    for _ in range(6):
        time.sleep(1.7)
        night.wire.cut()
    night.end()
    check(night)


def test_a_sweep_that_was_killed_is_resumed_and_ends_what_it_had_launched(night: Night) -> None:
    night.start(long_load(night.bed, "host"))
    night.await_phase("load chat")
    night.process.kill()
    night.process.communicate()
    assert night.bed.marked()
    lock = night.bed.folder / "host" / "run" / "lock.json"
    lock.unlink()  # as if its lease had run out
    resumed = night.bed.run("run", "--resume", "latest")
    assert resumed.returncode in (0, 1), resumed.stdout
    assert "left by the run before" in resumed.stdout
    check(night)
