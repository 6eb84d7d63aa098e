"""Know processes through /proc: whose they are, what they hold, and how to end them."""

from __future__ import annotations

import os
import pwd
import signal
import time
from typing import Callable, Iterator  # noqa: UP035 - Python 3.8 on the host

from .files import Json, read_bytes

MARK = "SGLANG_SWEEP_MARK"
RUN = "SGLANG_SWEEP_RUN"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """Tell one boot of the host from another."""
    return read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty when the process is gone.

    Index 0 is the state, 1 the parent, 11 and 12 user and system ticks, 19 the start time in
    ticks since boot.
    """
    text = read_bytes(f"/proc/{pid}/stat").decode(errors="replace")
    return text[text.rfind(")") + 2 :].split() if ")" in text else []


def alive(pid: int, start_ticks: int | None = None) -> bool:
    """Whether this very process still runs, or some one of this number; a zombie does not."""
    fields = stat_fields(pid)
    runs = bool(fields) and fields[0] not in "ZX"
    return runs and start_ticks in (None, int(fields[19]))


def ancestors() -> list[int]:
    """Whoever started this agent, and their parents, up to the first process."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 0:
        found.append(pid)
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return found


def nested_pids() -> bool:
    """Whether our pids are a container's, not the machine's, whose namespace has this number."""
    try:
        return os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
    except OSError:
        return False


def pids() -> Iterator[int]:
    """Every process there is."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            yield int(entry)


def mark_of(pid: int) -> str | None:
    """The marker that a process of ours carries in its environment."""
    key = f"{MARK}=".encode()
    for entry in read_bytes(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(key):
            return entry[len(key) :].decode(errors="replace")
    return None


def marked(prefix: str) -> list[tuple[int, int]]:
    """(pid, start ticks) of every live process whose marker begins with `prefix`."""
    found = []
    for pid in pids():
        mark = mark_of(pid)
        fields = stat_fields(pid) if mark is not None and mark.startswith(prefix) else []
        if fields and fields[0] not in "ZX":
            found.append((pid, int(fields[19])))
    return found


def describe(pid: int, start_ticks: int) -> Json | None:
    """What a person needs to know of a process; None when it is gone.

    Its age counts on the kernel's own clock: a container may be told another uptime.
    """
    uid = uid_of(pid)
    command = read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
    name = name_of(pid)
    mark = mark_of(pid)
    if uid is None or not alive(pid, start_ticks):
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / TICKS_PER_S
    return {
        "pid": pid,
        "start_ticks": start_ticks,
        "uid": uid,
        "user": user_name(uid),
        "name": name,
        "command": command.strip()[:500] or name,
        "age_s": round(age_s, 1),
        "started_at": round(time.time() - age_s, 2),
        "mark": mark,
    }


def name_of(pid: int) -> str:
    """The name that a process gave itself, up to 15 characters."""
    return read_bytes(f"/proc/{pid}/comm").decode(errors="replace").strip()


def uid_of(pid: int) -> int | None:
    """Whose a process is; None when it is gone.

    The owner of /proc/PID doesn't tell: it is root's once a process has changed its user.
    """
    for line in read_bytes(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None


def user_name(uid: int) -> str:
    """The name of a user; its number where a container's user has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def described(targets: list[tuple[int, int]]) -> list[Json]:
    """What a person needs to know of those that still live."""
    return [known for known in (describe(*target) for target in targets) if known is not None]


def send(pid: int, start_ticks: int, number: int) -> None:
    """Signal this very process, never one that has taken its pid since.

    A handle is opened first and the start time compared then: whatever the pid means later, the
    handle means that process. Kernels before 5.3 and Pythons before 3.9 have none, nor has a
    container that forbids it; there the pid is signalled right after the look.
    """
    handle = handle_of(pid)
    try:
        if not alive(pid, start_ticks):
            return
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        if handle is not None:
            os.close(handle)


def handle_of(pid: int) -> int | None:
    """A descriptor that means a process, whatever becomes of its pid; None where there is none."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def end(find: Callable[[], list[tuple[int, int]]], grace_s: float) -> dict[str, Json]:
    """End what `find` lists: SIGTERM, then SIGKILL after the grace; look again for newcomers."""
    ended: dict[tuple[int, int], Json] = {}
    deadline = time.monotonic() + grace_s
    number = signal.SIGTERM
    signalled: set[tuple[int, int]] = set()
    while True:
        targets = find()
        if not targets:
            return {"ended": list(ended.values()), "left": []}
        for target in targets:
            known = None if target in ended else describe(*target)
            if known is not None:
                ended[target] = known
        if number is signal.SIGTERM and time.monotonic() > deadline:
            number, signalled = signal.SIGKILL, set()
            deadline = time.monotonic() + 10
        elif number is signal.SIGKILL and time.monotonic() > deadline:
            return {"ended": list(ended.values()), "left": described(targets)}
        for target in targets:
            if target not in signalled:
                send(*target, number)
        signalled.update(targets)
        time.sleep(0.05)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def links(pid: int) -> Iterator[str]:
    """What the open file descriptors of a process point to."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")
        except OSError:
            continue


def mapped(pid: int) -> Iterator[str]:
    """The files that a process has mapped into memory."""
    for line in read_bytes(f"/proc/{pid}/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith(b"/"):
            yield os.fsdecode(fields[5])


def users(paths: set[str]) -> dict[str, int]:
    """Those of some files that a living process has open or mapped, with a pid of one."""
    found: dict[str, int] = {}
    for pid in pids() if paths else ():
        for path in paths.intersection((*links(pid), *mapped(pid))):
            found[path] = pid
    return found


def listeners(port: int) -> set[str]:
    """The socket inodes that listen on a TCP port, any address."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in read_bytes(table).decode().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def port_holders(port: int, ours: list[int]) -> str:
    """Who listens on a port: `nobody`, `ours`, or `another`."""
    inodes = listeners(port) if port else set()
    if not inodes:
        return "nobody"
    return "ours" if any(inodes & set(links(pid)) for pid in ours) else "another"
