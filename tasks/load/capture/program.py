"""The program: read a job, carry it out, report."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import struct
import sys
import time
from array import array
from collections import deque
from typing import Any

from .follow import turns_from
from .loop import Loop
from .stream import Stream, now_ns


def say(**message: object) -> None:
    """Tell the parent, one line."""
    os.write(1, json.dumps(message).encode() + b"\n")


def tell_progress(loop: Loop, now: int) -> None:
    """Tell how far the load is."""
    say(
        event="progress",
        elapsed_s=(now - loop.start) / 1e9,
        done=loop.done,
        failed=loop.failed,
        in_flight=loop.in_flight,
        reads=loop.reads,
        done_reads=loop.done_reads,
        ended=loop.ended,
    )
    loop.ended = []


def waited_s() -> float:
    """Seconds that this process was ready to run but had no core; 0 where Linux doesn't tell."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def take_precedence() -> bool:
    """Be woken before whatever else wants the core, where we may (as root, mostly); whether we may.

    At the lowest priority of real time, which Linux bounds to 95 % of a core: a client that must
    wait for its turn reads late, and measures the machine's other work instead of the server.
    """
    try:
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
    except (AttributeError, OSError):
        return False
    return True


def tell_end(loop: Loop, cpu_s: float, starved_s: float, precedence: bool) -> None:
    """Tell how it went and how well this program did its part."""
    say(
        event="end",
        stopped=loop.stopped,
        unsent=sum(map(turns_from, (*loop.pending, *loop.skipped))),
        opened=loop.opened,
        retries=loop.retries,
        reads=loop.reads,
        bytes=loop.bytes,
        unstamped=loop.unstamped,
        clock_step_ns=loop.clock_step,
        lag_p99_ns=weighted_quantile(loop.lags, 0.99),
        blinks_ns=loop.sight.blinks.tolist(),
        cpu_s=cpu_s,
        starved_s=starved_s,
        precedence=precedence,
        wall_s=(now_ns() - loop.start) / 1e9,
        peak_rss_kib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def weighted_quantile(values: array[int], share: float) -> int:
    """A quantile of values that are each followed by how often they occur; 0 of nothing."""
    rank, most = 0, share * sum(values[1::2])
    for value, count in sorted((values[at], values[at + 1]) for at in range(0, len(values), 2)):
        rank += count
        if rank >= most:
            return value
    return 0


def read_exactly(count: int) -> bytes:
    """Read from the standard input without reading ahead."""
    parts = []
    while count:
        part = os.read(0, min(count, 1 << 20))
        if not part:
            sys.exit(1)  # the parent is gone
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_job() -> tuple[dict[str, Any], deque[Stream]]:
    """Read the job and its requests; their times are ns after the start."""
    job = json.loads(read_exactly(struct.unpack("<I", read_exactly(4))[0]))
    streams: dict[int, Stream] = {}
    for index, due, size in job["requests"]:
        streams[index] = Stream(index, due, read_exactly(size))
    following = set()
    for number, before in enumerate(job.get("after") or ()):
        if before >= 0:
            index = job["requests"][number][0]
            streams[before].next = streams[index]
            following.add(index)
    return job, deque(stream for stream in streams.values() if stream.index not in following)


def open_doors(loop: Loop) -> None:
    """Let signals stop the load, and wake the loop for them; as many sockets as allowed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.stop("interrupted"))
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)
    signal.set_wakeup_fd(mouth)
    loop.poll.register(ear, 1)


def main() -> None:
    """Read a job, carry it out, report."""
    gc.disable()  # nothing here makes cycles, and a collection would stop every stream
    job, streams = read_job()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with open(job["path"], "wb", buffering=1 << 20) as out:
        loop = Loop(job, streams, out)
        open_doors(loop)
        loop.connect()
        say(event="ready")
        start = int(read_exactly(len("go ") + 20)[3:])
        loop.poll.register(0, 1)
        precedence = take_precedence()
        cpu_s, starved_s = time.process_time(), waited_s()
        loop.run(start, tell_progress)
        cpu_s, starved_s = time.process_time() - cpu_s, waited_s() - starved_s
    tell_end(loop, cpu_s, starved_s, precedence)
