"""Real processes for tests: start them, see whether they live, wait for what they do."""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

IGNORING = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
"""The beginning of a program that SIGTERM doesn't end."""


def state(pid: int) -> str:
    """The letter of a process' state, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    return state(pid) not in ("", "Z", "X")


def wait_for(condition: Callable[[], object], what: str = "it", timeout_s: float = 10.0) -> None:
    """Wait until something holds, or fail the test."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {timeout_s} s")
        time.sleep(0.02)


def pid_in(path: Path) -> int:
    """The pid that a program under test wrote to a file, once it is there."""
    wait_for(lambda: path.exists() and path.read_text().strip(), f"a pid in {path}")
    return int(path.read_text())


@contextmanager
def running(
    program: str, *arguments: object, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program until the block ends; it says that it is there by writing a line."""
    command = [sys.executable, "-u", "-c", program, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the program ended before it said a word"
        yield process
    finally:
        # It leads a session of its own: what it started goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def oldest_python() -> str | None:
    """A Python 3.8 on this machine, the oldest that a host may have."""
    usual = os.path.expanduser("~/.pyenv/versions/3.8*/bin/python3.8")
    for candidate in [shutil.which("python3.8"), *glob.glob(usual)]:
        works = candidate and subprocess.run([candidate, "-c", ""], capture_output=True)
        if works and works.returncode == 0:
            return candidate
    return None
