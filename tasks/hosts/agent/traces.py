"""Know what a server of ours made outside its folder, and take it away when all of it is dead.

Shared memory and build locks bear nobody's name. So they are ours only if a process of ours was
seen to have them, and they weren't there before its launch; and they are left over only when that
launch is dead, they are the very same, and no process on the machine has them open.
"""

from __future__ import annotations

import ctypes
import glob
import os
import stat
import time
from typing import Iterator, NamedTuple  # noqa: UP035 - Python 3.8 on the host

from .files import Json, read_bytes, read_json, write_json
from .processes import alive, boot_id, links, mapped, marked, users

SHARED_MEMORY = "/dev/shm"
LOCK = "lock"
"""torch's file baton: its maker holds it open, and whoever waits only looks whether it is there."""

ASIDE = ".left-behind"
LONGEST_PAUSE_S = 32.0
_IPC_RMID = 0


class Segment(NamedTuple):
    """A System V shared memory segment, as the kernel lists it."""

    number: int
    bytes: int
    maker: int
    attached: int
    changed: int


class Traces:
    """What a launch has made so far, written to a file when there is any.

    It is looked for ever more rarely: most of it is made at the start, and a look takes time from
    the server. `folder` is the launch's.
    """

    def __init__(self, path: str, folder: str, mark: str) -> None:
        self.path = path
        self.mark = mark
        self.before = {
            identity(os.path.join(parent, name))
            for parent, _, names in os.walk(SHARED_MEMORY)
            for name in names
        }
        self.segments_before = {segment.number for segment in segments()}
        self.started_at = time.time()
        self.family: set[int] = set()
        self.found: dict[str, Json] = {"files": {}, "segments": {}}
        self.found.update(mark=mark, folder=folder, boot_id=boot_id())
        self.pause_s = 1.0
        self.next_at = time.monotonic() + self.pause_s

    def look_if_due(self) -> None:
        """Look when it is time again."""
        if time.monotonic() >= self.next_at:
            self.look()
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
            self.next_at = time.monotonic() + self.pause_s

    def look(self) -> None:
        """Write down what the processes of the launch have now."""
        known = len(self.found["files"]) + len(self.found["segments"])
        for pid, _ in marked(self.mark):
            self.family.add(pid)
            for path in {*links(pid), *mapped(pid)}:
                if self.made(path):
                    self.found["files"][path] = identity(path)
        for segment in segments():
            if segment.maker in self.family and segment.number not in self.segments_before:
                self.found["segments"][str(segment.number)] = [segment.maker, segment.changed]
        if known < len(self.found["files"]) + len(self.found["segments"]):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            write_json(self.path, self.found)

    def made(self, path: str) -> bool:
        """Whether a file is one that this launch has made and might leave behind."""
        kept = identity(path)
        if kept is None or kept in self.before:
            return False
        if in_memory(path):
            return True
        return os.path.basename(path) == LOCK and kept[2] / 1e9 >= self.started_at - 1.0


def identity(path: str) -> tuple[int, int, int] | None:
    """What tells a file of ours from a later one of the same name; None where there is none.

    Of shared memory its number, which isn't given twice between two boots; of another file also
    when it was last changed.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
        return None
    return status.st_dev, status.st_ino, 0 if in_memory(path) else status.st_ctime_ns


def segments() -> Iterator[Segment]:
    """The System V shared memory segments that there are."""
    for line in read_bytes("/proc/sysvipc/shm").decode().splitlines()[1:]:
        number = list(map(int, line.split()))
        yield Segment(number[1], number[3], number[4], number[6], number[13])


def leftovers(folder: str) -> Iterator[dict[str, Json]]:
    """What dead launches have left: kind, name, size in bytes, and whose it was."""
    for _, traces in of_the_dead(folder):
        files = set(left_files(traces))
        for name in sorted(files.difference(users(files))):
            if readable_by_us_alone(name):
                kind = "shared memory" if in_memory(name) else "build lock"
                yield {"kind": kind, "name": name, "mark": traces["mark"], "bytes": size(name)}
        for segment in left_segments(traces):
            if not segment.attached:
                told = {"kind": "segment", "name": str(segment.number), "mark": traces["mark"]}
                yield {**told, "bytes": segment.bytes}


def of_the_dead(folder: str) -> Iterator[tuple[str, Json]]:
    """The traces, with their files, of launches of which no process lives."""
    for path in sorted(glob.glob(f"{glob.escape(folder)}/*.json")):
        traces = read_json(path)
        process = read_json(os.path.join(traces["folder"], "process.json"))
        living = process is not None and alive(process["pid"], process["start_ticks"])
        if not living and not marked(traces["mark"]):
            yield path, traces


def left_files(traces: Json) -> Iterator[str]:
    """The files among some traces that are still there; memory doesn't outlive a boot."""
    for name, kept in traces["files"].items():
        lasts = not in_memory(name) or traces["boot_id"] == boot_id()
        now = identity(name) if lasts else None
        if now is not None and list(now) == kept:
            yield name


def left_segments(traces: Json) -> Iterator[Segment]:
    """The System V segments among some traces that are still there."""
    for segment in segments() if traces["boot_id"] == boot_id() else ():
        if traces["segments"].get(str(segment.number)) == [segment.maker, segment.changed]:
            yield segment


def in_memory(name: str) -> bool:
    """Whether a file is shared memory."""
    return name.startswith(SHARED_MEMORY + "/")


def readable_by_us_alone(name: str) -> bool:
    """Whether nobody out of our sight can have it open: root sees all, others only their own."""
    try:
        return os.getuid() == 0 or not os.lstat(name).st_mode & 0o077
    except OSError:
        return False


def size(name: str) -> int:
    """The size of a file, 0 where it is gone."""
    try:
        return os.lstat(name).st_size
    except OSError:
        return 0


def remove_leftovers(folder: str) -> Iterator[dict[str, Json]]:
    """Take leftovers away: shared memory is removed, a build lock moved aside; what was done."""
    for each in list(leftovers(folder)):
        if taken_away(each["kind"], each["name"]):
            yield each
    for path, traces in of_the_dead(folder):
        if not any(left_files(traces)) and not any(left_segments(traces)):
            os.remove(path)


def taken_away(kind: str, name: str) -> bool:
    """Remove one leftover; whether that worked."""
    try:
        if kind == "segment":
            return bool(ctypes.CDLL(None).shmctl(int(name), _IPC_RMID, None) == 0)
        if kind == "build lock":
            os.rename(name, name + ASIDE)
        else:
            os.remove(name)
    except OSError:
        return False
    return True
