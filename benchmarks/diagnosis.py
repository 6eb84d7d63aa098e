"""How fast a long log is diagnosed in how much memory, and how soon a death is explained.

    python benchmarks/diagnosis.py [--megabytes 200] [--rounds 10] [--loopback] [--host ALIAS]

The log is that of a busy server, with what kills it at its end, read from a file line by line as
`sglang-sweep diagnose` does. Then a program that stands in for a server kills itself on this
machine, over SSH (to this machine, or a host of ~/.ssh/config), and as one node of two: from its
last word to the diagnosis.
"""

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

from settings.host import Host as HostSettings
from tasks.domain.diagnosis import Doctor
from tasks.domain.progress import Progress
from tasks.failures.diagnosis import diagnose_lines, diagnosis_of
from tasks.failures.fatal import fatal_line
from tasks.failures.nodes import blame
from tasks.hosts.connect import connect
from tasks.hosts.lock import hold_all
from tasks.server.attempt import explain
from tasks.server.command import CommandLine
from tasks.server.launch import Node, Patience, end_launch, mark_of, start
from tasks.server.readiness import NotReady, await_ready
from tests.hosts.sshd import Home, Sshd

DOCTOR = Doctor(blame, fatal_line, diagnosis_of)
BUSY = (
    "[2026-01-05 11:{m:02d}:{s:02d} TP0] Decode batch, #running-req: {n}, #token: {n}00,"
    " token usage: 0.03, cuda graph: True, gen throughput (token/s): 711.20, #queue-req: 0,\n",
    '[2026-01-05 11:{m:02d}:{s:02d}] INFO:     127.0.0.1:{n} - "POST /generate HTTP/1.1" 200 OK\n',
    "[2026-01-05 11:{m:02d}:{s:02d} TP1] WARNING: request {n} not found in the cache, is not an"
    " error\n",
)
END = (
    "[2026-01-05 12:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    "[2026-01-05 12:00:01] Received sigquit from a child process.\n"
)
DIES = """
import os, signal, sys, time
print("[2026-01-05 11:00:00] server_args=ServerArgs(model_path='m')", flush=True)
time.sleep({alive_s})
print("RuntimeError: Cannot find any model weights with `/models/x`", time.time(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def write_log(path: Path, megabytes: int) -> None:
    """Write a busy server's log; each third line has words that make it worth a second look."""
    with path.open("w") as file:
        number = 0
        while file.tell() < megabytes << 20:
            for line in BUSY:
                number += 1
                file.write(line.format(m=number // 60 % 60, s=number % 60, n=number))
        file.write(END)


def decoded(path: Path) -> Iterator[str]:
    """Read a log as the command does."""
    with path.open("rb") as file:
        for line in file:
            yield line.decode(errors="replace")


def time_long_log(megabytes: int) -> None:
    """Diagnose a long log from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        write_log(path, megabytes)
        began = time.process_time()
        bare = sum(1 for _ in decoded(path))
        read_s = time.process_time() - began
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        found = diagnose_lines(decoded(path), -9)
        took_s = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"{megabytes} MB, {bare:,} lines: {found and found.mode} in {took_s:.1f} s of CPU", end=""
    )
    print(f" ({took_s / read_s:.1f} times reading it), {grown / 1024:.0f} MiB more memory")


WAITS = "import time; print('server_args=ServerArgs()', flush=True); time.sleep(600)"


async def death_to_diagnosis(
    places: Sequence[HostSettings], rounds: int, alive_s: float
) -> list[float]:
    """Seconds from the last word of a server that dies to what it died of; its last node does."""
    took: list[float] = []
    patience = Patience(60.0, 60.0, 1.0)
    async with AsyncExitStack() as stack:
        hosts = [
            await stack.enter_async_context(connect(f"bench-{number}", settings))
            for number, settings in enumerate(places)
        ]
        holds = await stack.enter_async_context(hold_all(hosts, "bench", "token", 60, 0))
        for _ in range(rounds):
            mark = f"bench-{uuid.uuid4().hex[:8]}/"
            nodes = []
            for rank, held in enumerate(holds):
                dies = rank == len(holds) - 1
                words = ("-c", DIES.format(alive_s=alive_s) if dies else WAITS)
                command = CommandLine((held.host.transport.python, *words), {})
                nodes.append(Node(held, mark_of(mark, rank), 0, command))
            launch = await start(nodes, patience)
            outcome = await await_ready(launch, patience, fatal_line, Progress("bench"))
            assert isinstance(outcome, NotReady)
            guilty, diagnosis = explain(outcome, launch, DOCTOR)
            ended = time.time()
            assert diagnosis.mode == "weights-missing", diagnosis
            took.append(ended - float(guilty.log.split()[-1]))
            await end_launch(holds, mark, 1.0)
    return took


@contextmanager
def loopback(folder: Path) -> Iterator[str]:
    """Serve SSH on this machine, for a home of its own; its alias."""
    home, sshd = Home(folder / "home"), Sshd(folder / "sshd")
    os.environ["HOME"] = str(home.folder)
    os.environ.pop("SSH_AUTH_SOCK", None)
    sshd.let_in(home.key)
    sshd.start()
    home.configure("loopback", sshd.port)
    home.trust(sshd)
    try:
        yield "loopback"
    finally:
        sshd.kill()


def time_deaths(folder: Path, alias: str, rounds: int, alive_s: float) -> None:
    """Time the deaths here, over SSH, and of the second node of two."""
    here = HostSettings(run_folder=f"{folder}/here")
    places = {"here": [here]}
    if alias:
        there = HostSettings(address=alias, run_folder=f"{folder}/ssh")
        places |= {f"over SSH ({alias})": [there], "second of two nodes, over SSH": [here, there]}
    for place, settings in places.items():
        took = asyncio.run(death_to_diagnosis(settings, rounds, alive_s))
        print(f"death to diagnosis, {place}: median {statistics.median(took):.2f} s", end="")
        print(f", at most {max(took):.2f} s of {len(took)}", flush=True)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--alive", type=float, default=3.0, help="seconds until the server dies")
    parser.add_argument("--host", help="an alias of ~/.ssh/config, whose clock is ours")
    parser.add_argument("--loopback", action="store_true", help="over SSH to this machine too")
    asked = parser.parse_args()
    time_long_log(asked.megabytes)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        alias = stack.enter_context(loopback(folder)) if asked.loopback else asked.host or ""
        time_deaths(folder, alias, asked.rounds, asked.alive)


if __name__ == "__main__":
    main()
