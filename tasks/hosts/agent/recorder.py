"""Follow a program that prints lines for ever, and say when each was true."""

from __future__ import annotations

import subprocess
import time
from typing import List  # noqa: UP035 - Python 3.8 on the host

from .files import Json

GIVE_UP_AFTER = 5
"""Starts in a row without a line, after which the program is taken not to work here."""

MOST_LATE_S = 60.0


def record(request: Json) -> None:
    """Print each line that begins with a time, with its moment on two clocks instead.

    That is UTC seconds since the epoch, CLOCK_MONOTONIC nanoseconds, and the rest of the line;
    other lines are complaints and printed as they are. A program that ends is started again; one
    that never said anything is tried by its next spelling.
    """
    commands, failures = request["commands"], 0
    while failures < GIVE_UP_AFTER:
        said = follow(commands[failures % len(commands)])
        failures = 0 if said else failures + 1
        time.sleep(request["every_s"])


def follow(argv: List[str]) -> bool:  # noqa: UP006 - Python 3.8 on the host
    """Pass a program's lines on until it ends; whether there was one with a time."""
    try:
        program = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", flush=True)
        return False
    said = False
    with program:
        assert program.stdout is not None
        for raw in program.stdout:
            line = raw.decode(errors="replace").strip()
            when, _, rest = line.partition(", ")
            late_s = lateness_s(when, time.time())
            said = said or late_s is not None
            print(line if late_s is None else f"{moment(late_s)} {rest}", flush=True)
    return said


def moment(late_s: float) -> str:
    """Both clocks as they were so long ago."""
    return f"{time.time() - late_s:.3f} {time.monotonic_ns() - int(late_s * 1e9)}"


def lateness_s(when: str, now: float) -> float | None:
    """How long ago a local time such as `2026/01/10 09:11:02.123` was; None where it is none.

    A program may gather lines before it writes them. A lateness that can't be is no lateness: the
    clock was set, or the hour is the one that summer time has twice.
    """
    try:
        seconds = time.mktime(time.strptime(when[:19], "%Y/%m/%d %H:%M:%S"))
        late_s = now - seconds - float(when[19:] or "0")
    except (ValueError, OverflowError):
        return None
    return late_s if 0 <= late_s <= MOST_LATE_S else 0.0
