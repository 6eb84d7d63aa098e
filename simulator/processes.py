"""The processes of a server: one scheduler a rank, a detokenizer, and what may be left behind.

Children are forked, not started anew: they keep the environment (it is how their owner finds
them), cost a millisecond, and take SGLang's names. Each scheduler holds its device files open.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
LIBC = ctypes.CDLL(None, use_errno=True)


def spans() -> tuple[int, int, int, int]:
    """Return where this process' command line and its environment lie in memory."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[45]), int(fields[46]), int(fields[47]), int(fields[48])


def rename(title: str) -> None:
    """Change what `ps` shows of this process, as setproctitle does.

    That is, over its arguments and, unless SPT_NOENV is set, over the environment behind them:
    /proc/PID/environ then shows nothing.
    """
    LIBC.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)
    start, end, environment, environment_end = spans()
    room = end - start
    if room > 1:
        ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)
    if not os.environ.get("SPT_NOENV"):
        ctypes.memset(environment, 0, environment_end - environment)


def spawn(title: str, devices: Sequence[Path], orphan: bool = False) -> int:
    """Fork a child that holds device files open and waits; return its pid once it holds them.

    It dies with its parent, or, as an `orphan`, outlives it in a session of its own and ignores
    SIGTERM.
    """
    parent = os.getpid()
    ready, told = os.pipe()
    pid = os.fork()
    if pid:
        os.close(told)
        os.read(ready, 1)  # or its end, where the child died first
        os.close(ready)
        return pid
    _reset_signals(orphan)
    if orphan:
        os.setsid()
    else:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked to be told
            os._exit(0)
    _hold(title, devices, told)
    os._exit(0)


def _reset_signals(orphan: bool) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if orphan:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _hold(title: str, devices: Sequence[Path], told: int) -> None:
    """Become the child: its name, its devices, and nothing else of the parent's but the log."""
    rename(title)
    os.closerange(3, told)
    os.closerange(told + 1, 4096)
    for device in devices:
        with contextlib.suppress(OSError):
            os.open(device, os.O_RDWR)
    os.write(told, b"!")
    os.close(told)
    while True:
        signal.pause()


def in_child(work: Callable[[], None]) -> int:
    """Fork a child that does some work and dies with its parent; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    _reset_signals(orphan=False)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(KeyboardInterrupt):
        work()
    os._exit(0)


def reap() -> list[tuple[int, int]]:
    """Collect children that have ended: (pid, exit code; negative for a signal)."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def end_all(pids: Sequence[int]) -> None:
    """Kill children and wait for them, so that none holds a device when we are gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 5
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline_s:
                time.sleep(0.001)
