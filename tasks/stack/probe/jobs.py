"""Try things in processes of their own: each may crash, hang, or leave others behind."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import tempfile
import time
from typing import IO, Any, Callable, Iterator  # noqa: UP035 - Python 3.8 on the host

Json = Any
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Job:
    """Something tried in a process of its own: a function whose value is kept, or a program."""

    def __init__(
        self,
        name: str,
        timeout_s: float,
        function: Callable[[], Json] | None = None,
        argv: list[str] | None = None,
        after: Job | None = None,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.function = function
        self.argv = argv
        self.after = after
        self.out = nameless_file()
        self.err = nameless_file()
        self.pid = 0
        self.started = 0.0
        self.outcome: dict[str, Json] = {}

    def start(self) -> None:
        """Fork, and in the child never return."""
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._run()
            finally:
                os._exit(71)

    def _run(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(self.err.fileno(), 2)
        os.dup2(self.out.fileno() if self.argv else nowhere, 1)
        if self.argv:
            os.execvpe(self.argv[0], self.argv, {**os.environ, "COLUMNS": "100000"})
        if self.function:
            mine = os.getpid()
            answer = answer_of(self.function)
            # An import that forked comes back twice.
            if os.getpid() == mine:
                self.out.write(json.dumps(answer).encode())
                self.out.flush()
            os._exit(0)

    def finish(self, status: int | None) -> None:
        """Keep how it ended; None is a time-out."""
        seconds = round(time.monotonic() - self.started, 3)
        # os.waitstatus_to_exitcode came with Python 3.9.
        code = status and (os.WEXITSTATUS(status) or -os.WTERMSIG(status))
        self.outcome = {"code": code, "seconds": seconds, "stderr": whole(self.err)[-4000:]}
        text = whole(self.out)
        if self.argv:
            self.outcome["stdout"] = text
        elif code == 0 and text:
            self.outcome.update(json.loads(text))


def answer_of(function: Callable[[], Json]) -> Json:
    """The function's value with the seconds that it took, or what it raised and why."""
    started = time.monotonic()
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001 - an import may raise anything, SystemExit too
        return {"error": told(error)}
    return {"value": value, "import_s": round(time.monotonic() - started, 3)}


def told(error: BaseException | None) -> str:
    """An exception and what it came from, the outermost first."""
    lines: list[str] = []
    while error is not None and len(lines) < 8:
        lines.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(lines)[:8000]


def nameless_file() -> IO[bytes]:
    """A file that leaves no trace: in memory where the system can, so that a full disk is none."""
    try:
        return os.fdopen(os.memfd_create("probe"), "w+b")
    except (AttributeError, OSError):
        return tempfile.TemporaryFile()


def whole(file: IO[bytes]) -> str:
    """Everything that was written to a file."""
    file.seek(0)
    return file.read().decode(errors="replace")


def run_jobs(jobs: list[Job], at_once: int) -> None:
    """Run all, so many at once; one that exceeds its time is ended with all that it started."""
    waiting = list(jobs)
    running: dict[int, Job] = {}
    while waiting or running:
        for job in ready(waiting)[: max(0, at_once - len(running))]:
            waiting.remove(job)
            job.start()
            running[job.pid] = job
        for pid, status in reaped():
            if pid in running:
                running.pop(pid).finish(status)
        for job in list(running.values()):
            if time.monotonic() - job.started > job.timeout_s:
                kill_all([*descendants(job.pid), job.pid])
                running.pop(job.pid).finish(None)
        time.sleep(0.01)


def ready(jobs: list[Job]) -> list[Job]:
    """Those that wait for no other, or for one that has ended."""
    return [job for job in jobs if job.after is None or job.after.outcome]


def reaped() -> Iterator[tuple[int, int]]:
    """Children that have ended, also the orphans that fell to us."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def descendants(ancestor: int) -> list[int]:
    """Every process below another one."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", errors="replace") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found, generation = [], {ancestor}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found += sorted(generation)
    return found


def kill_all(pids: list[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def end_descendants() -> None:
    """Leave nothing behind: as a subreaper we are the parent of whatever was orphaned."""
    deadline = time.monotonic() + 5
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        kill_all(left)
        list(reaped())
        time.sleep(0.01)


def attempt(question: Callable[[], Json]) -> Json:
    """An answer, or None: a build without CUDA lacks half of these, each in its own way."""
    try:
        return question()
    except Exception:  # noqa: BLE001 - the question is foreign code
        return None
