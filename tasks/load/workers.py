"""Run the capture program in processes of its own, which end when this one does."""

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tasks.domain.errors import SweepError
from tasks.load.schedule import Schedule

_BOOT = "import sys; sys.path.append(sys.argv[1]); from capture.program import main; main()"
_PACKAGES = Path(__file__).parent
_START_NS = 20_000_000
CONNECT_S = 10.0
"""How long a connection may take, its TLS handshake included."""

_LINE_LIMIT = 1 << 20
_STREAMS_PER_PROCESS = 256
_REQUESTS_PER_S_PER_PROCESS = 500


class CaptureFailed(SweepError):
    """A load process ended before its load did."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(f"a load process ended with {code}: {message or 'it said nothing'}")


@dataclass(frozen=True, slots=True)
class Job:
    """One process's part of a load; `path` is where its streams go, `plain` as `capture` has it."""

    host: str
    port: int
    schedule: Schedule
    indices: Sequence[int]
    requests: Sequence[bytes]
    preconnect: int
    timeout_s: float
    path: Path
    plain: Mapping[str, object] | None = None
    tell_ended: bool = False
    tls: bool = False

    def encode(self) -> bytes:
        """The job in the form that the program reads."""
        sizes = map(len, self.requests)
        head = {
            "host": self.host,
            "port": self.port,
            "tls": self.tls,
            "paced": self.schedule.paced,
            "slots": self.schedule.slots,
            "preconnect": self.preconnect,
            "timeout_s": self.timeout_s,
            "connect_s": CONNECT_S,
            "path": str(self.path),
            "plain": self.plain,
            "tell_ended": self.tell_ended,
            "after": self.schedule.after,
            "requests": list(zip(self.indices, self.schedule.due_ns, sizes, strict=True)),
        }
        text = json.dumps(head).encode()
        return b"".join([struct.pack("<I", len(text)), text, *self.requests])


@dataclass(frozen=True, slots=True)
class CaptureFacts:
    """What the load processes say of themselves, all of them together.

    `stopped` says why sending stopped early (empty if it didn't), `unsent` how many requests were
    never sent for it. `busy` is the share of its time that the busiest process computed,
    `lag_p99_ns` how late the latest process came to read, `clock_step_ns` the largest jump of
    CLOCK_REALTIME, `starved_s` how long they were ready to run but had no core, `precedence` if
    all had it before whatever else wanted it. `blinks_ns` are the times (CLOCK_MONOTONIC, from and
    until) that a process was too long without looking at what had arrived.
    """

    processes: int = 0
    stopped: str = ""
    unsent: int = 0
    opened: int = 0
    retries: int = 0
    reads: int = 0
    bytes: int = 0
    unstamped: int = 0
    clock_step_ns: int = 0
    lag_p99_ns: int = 0
    blinks_ns: Sequence[tuple[int, int]] = ()
    cpu_s: float = 0.0
    starved_s: float = 0.0
    precedence: bool = False
    busy: float = 0.0
    peak_rss_kib: int = 0

    @property
    def timestamps(self) -> str:
        """Whose clock stamped the reads: `kernel`, or `clock` where it didn't for over 1 %."""
        return "clock" if self.unstamped * 100 > self.reads else "kernel"


class Teller(Protocol):
    """A process of the load, wherever it runs, as whoever looks on knows it."""

    progress: dict[str, Any]
    ended: list[list[int]]
    facts: dict[str, Any] | None

    def say(self, line: bytes) -> None:
        """Tell the process something."""
        ...


@dataclass(slots=True, eq=False)
class Worker:
    """One process of the load and the last it said."""

    process: asyncio.subprocess.Process
    errors: Path
    progress: dict[str, Any] = field(default_factory=dict)
    ended: list[list[int]] = field(default_factory=list)
    facts: dict[str, Any] | None = None

    def say(self, line: bytes) -> None:
        """Tell the process; one that is gone is found out where its answers are read."""
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(line)

    async def hear(self) -> dict[str, Any] | None:
        """Read its next message; None when it has said its last."""
        if self.process.stdout is None:
            return None
        line = await self.process.stdout.readline()
        return json.loads(line) if line else None

    async def follow(self) -> None:
        """Follow it to its end."""
        while message := await self.hear():
            if message["event"] == "end":
                self.facts = message
            else:
                self.ended += message.pop("ended")
                self.progress = message
        if self.facts is None:
            raise await self.failure()

    async def failure(self) -> CaptureFailed:
        """Say why it ended early: the last line of its standard error."""
        code = await self.process.wait()
        lines = self.errors.read_text("utf-8", "replace").split("\n")
        return CaptureFailed(code, next((line for line in reversed(lines) if line.strip()), ""))


Watcher = Callable[[Sequence[Teller]], Coroutine[None, None, object]]
"""Looks on while the processes run; it is cancelled when they have ended."""

Capture = Callable[[Sequence[Job], Path, Watcher], Awaitable[CaptureFacts]]
"""Carries out the jobs, here or elsewhere; what is captured lies in the jobs' files afterwards."""


def processes_for(slots: int, rate_per_s: float | None) -> int:
    """How many processes a load wants: one for each 256 streams or 500 requests a second.

    At most half of the cores that we may use, since the server may live on the same machine.
    """
    wanted = -(-slots // _STREAMS_PER_PROCESS)
    if rate_per_s is not None:
        wanted = -(-int(rate_per_s) // _REQUESTS_PER_S_PER_PROCESS)
    return max(1, min(wanted, len(os.sched_getaffinity(0)) // 2))


async def capture(jobs: Sequence[Job], folder: Path, watch: Watcher) -> CaptureFacts:
    """Carry out the jobs, all starting at one moment, while `watch` looks on.

    A cancellation ends the processes at once; `stop_all` ends the load and keeps what came.
    """
    async with _started(len(jobs), folder) as workers:
        pairs = zip(workers, jobs, strict=True)
        await asyncio.gather(*(_prepare(worker, job) for worker, job in pairs))
        start = time.monotonic_ns() + _START_NS
        for worker in workers:
            worker.say(b"go %020d" % start)
        await _follow(workers, watch)
    return merge([worker.facts for worker in workers if worker.facts is not None])


async def _follow(workers: Sequence[Worker], watch: Watcher) -> None:
    """Follow the processes to their end."""

    async def all_of_them() -> None:
        await asyncio.gather(*(worker.follow() for worker in workers))

    await watched(all_of_them(), workers, watch)


async def watched(
    work: Coroutine[Any, Any, None], workers: Sequence[Teller], watch: Watcher
) -> None:
    """Do the work while somebody looks on; a watcher that fails ends it."""
    following = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(watch(workers))
    try:
        both: list[asyncio.Future[Any]] = [following, watching]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            await watching
        await following
    finally:
        following.cancel()
        watching.cancel()
        await asyncio.gather(following, watching, return_exceptions=True)


def stop_all(workers: Sequence[Teller], reason: str) -> None:
    """Have the processes send no more, give up what is in flight (not if `ENOUGH`), and report."""
    for worker in workers:
        if worker.facts is None:
            worker.say(f"stop {reason}\n".encode())


def merge(facts: Sequence[Mapping[str, Any]]) -> CaptureFacts:
    """Sum up what the processes say; of what can't be summed, the worst."""
    if not facts:
        return CaptureFacts()
    summed = ("unsent", "opened", "retries", "reads", "bytes", "unstamped", "cpu_s", "starved_s")
    worst = ("clock_step_ns", "lag_p99_ns", "peak_rss_kib")
    return CaptureFacts(
        processes=len(facts),
        stopped=next((fact["stopped"] for fact in facts if fact["stopped"]), ""),
        blinks_ns=tuple(
            (since, until)
            for fact in facts
            for since, until in zip(fact["blinks_ns"][::2], fact["blinks_ns"][1::2], strict=True)
        ),
        precedence=all(fact["precedence"] for fact in facts),
        busy=max(fact["cpu_s"] / max(fact["wall_s"], 1e-9) for fact in facts),
        **{name: sum(fact[name] for fact in facts) for name in summed},
        **{name: max(fact[name] for fact in facts) for name in worst},
    )


@asynccontextmanager
async def _started(count: int, folder: Path) -> AsyncIterator[list[Worker]]:
    """Start that many processes; none of them outlives the block."""
    workers: list[Worker] = []
    try:
        for number in range(count):
            workers.append(await _start(folder / f"worker-{number}.err"))  # noqa: PERF401 - each
            # one is on the list, and so gets ended, before the next is started
        yield workers
    finally:
        for worker in workers:
            if worker.process.returncode is None:
                _kill(worker.process.pid)
        ended = asyncio.gather(*(worker.process.communicate() for worker in workers))
        await asyncio.shield(ended)


def _kill(pid: int) -> None:
    """Kill a child without `Popen.kill`, which looks first and so snatches it from asyncio."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def _start(errors: Path) -> Worker:
    # Without the user's site packages and variables: faster, and nothing of theirs interferes.
    command = (sys.executable, "-I", "-S", "-c", _BOOT, str(_PACKAGES))
    with errors.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            limit=_LINE_LIMIT,
            start_new_session=True,  # a Ctrl-C in the terminal is ours to answer
        )
    return Worker(process, errors)


async def _prepare(worker: Worker, job: Job) -> None:
    """Hand over the job and wait until the connections stand."""
    worker.say(job.encode())
    if await worker.hear() is None:
        raise await worker.failure()
