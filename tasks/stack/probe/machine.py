"""The machine below the interpreter: room, limits, and what its kernel has seen."""

from __future__ import annotations

import glob
import os
import platform
import re
import resource
import shutil
import subprocess
import tempfile
import time
from functools import partial

from .jobs import Json, attempt
from .toolkit import toolkit

XID = "NVRM: Xid"
MOST_XIDS = 20
STALE_LOCK_S = 600.0


def space(path: str) -> tuple[int, int] | None:
    """Bytes in all and free for us on the file system of a path, or of its nearest parent."""
    found = attempt(lambda: os.statvfs(nearest(path)))
    return found and (found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)


def nearest(path: str) -> str:
    """A path, or the nearest folder above it that is there."""
    path = os.path.abspath(os.path.expanduser(path))
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def place(path: str) -> Json:
    """Room in a folder that a server writes to, and whether we may write there."""
    there = nearest(path)
    found = attempt(lambda: os.statvfs(there))
    return {
        "path": os.path.expanduser(path),
        "free_bytes": found and found.f_frsize * found.f_bavail,
        # Some file systems count no inodes, and say 0 of 0.
        "free_inodes": found.f_favail if found and found.f_files else None,
        "writable": os.access(there, os.W_OK | os.X_OK),
    }


def places(folder: str) -> Json:
    """Where a server writes: logs, temporary files, and what it downloads or builds."""
    env = os.environ.get
    cache = env("XDG_CACHE_HOME") or "~/.cache"
    hub = env("HF_HUB_CACHE") or os.path.join(env("HF_HOME") or f"{cache}/huggingface", "hub")
    named = {
        "run folder": folder,
        "temporary files": attempt(tempfile.gettempdir) or "/tmp",
        "hub cache": hub,
        "Triton cache": env("TRITON_CACHE_DIR") or "~/.triton/cache",
        "flashinfer cache": os.path.join(env("FLASHINFER_WORKSPACE_BASE") or "~", ".cache"),
        "cache": cache,
    }
    return {name: place(path) for name, path in named.items()}


def system_name() -> str:
    """The operating system as it calls itself, and the kernel."""
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', content("/etc/os-release"), re.MULTILINE)
    return f"{match.group(1) if match else platform.system()}, {platform.release()}"


def content(path: str) -> str:
    """A small file's text; empty where it can't be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def memory() -> Json:
    """Bytes of memory: the machine's, what is available, and what this container may use."""
    told = dict(re.findall(r"^(\w+):\s+(\d+) kB", content("/proc/meminfo"), re.MULTILINE))
    limits = [
        content(f"/sys/fs/cgroup/{name}").strip()
        for name in ("memory.max", "memory/memory.limit_in_bytes")
    ]
    total = int(told.get("MemTotal", 0)) * 1024
    # Without a limit version 1 tells the largest page-aligned number instead of none.
    limited = [int(limit) for limit in limits if limit.isdigit() and int(limit) < total]
    return {
        "total": total,
        "available": int(told.get("MemAvailable", 0)) * 1024,
        "limit": min(limited) if limited else None,
    }


def limits() -> dict[str, list[int]]:
    """What a process may have, soft and hard; -1 is no limit."""
    names = ("NOFILE", "MEMLOCK", "NPROC", "STACK")
    return {
        name.lower(): list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}")))
        for name in names
    }


def xids() -> Json:
    """What the kernel told of faults of the GPUs since its start; None where we may not read it."""
    said = kernel_log()
    if said is None:
        return None
    return [
        {"age_s": max(0.0, round(time.monotonic() - at, 1)), "text": text}
        for at, text in said[-MOST_XIDS:]
    ]


def kernel_log() -> list[tuple[float, str]] | None:
    """The lines about Xids with the seconds since the start at which each was written."""
    try:
        reader = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return journal()
    found = []
    try:
        while True:
            try:
                record = os.read(reader, 8192).decode(errors="replace")
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # overwritten while it was read; the next is there
            found += records(record)
    except OSError:
        return journal()
    finally:
        os.close(reader)
    return found


def records(text: str) -> list[tuple[float, str]]:
    """Read `6,1234,567890,-;text` of /dev/kmsg, microseconds in the third field."""
    head, _, line = text.partition(";")
    fields = head.split(",")
    line = line.partition("\n")[0]
    return [(int(fields[2]) / 1e6, line)] if XID in line and len(fields) > 2 else []


def journal() -> list[tuple[float, str]] | None:
    """What the journal has of the kernel's log; None where there is none for us."""
    program = shutil.which("journalctl")
    if program is None:
        return None
    command = [program, "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "--grep", XID]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.decode(errors="replace")
    lines = re.findall(rf"^\[\s*([\d.]+)\].*?({XID}.*)$", said, re.MULTILINE)
    # Without permission it says nothing, like one that has nothing to say.
    return [(float(at), text) for at, text in lines] if lines else None


def fabric() -> Json:
    """NVSwitches and the processes that manage them, as far as they can be seen from here."""
    names = {content(path).strip() for path in glob.glob("/proc/[0-9]*/comm")}
    # The kernel keeps the first 15 characters of a name.
    return {
        "switches": len(glob.glob("/dev/nvidia-nvswitch[0-9]*")),
        "manager": "nv-fabricmanage" in names,
    }


def build_locks() -> list[str]:
    """Locks of kernels being built that are older than any build takes."""
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or "~/.cache/torch_extensions"
    found = glob.glob(f"{os.path.expanduser(folder)}/**/lock", recursive=True)
    return sorted(path for path in found if age_of(path) > STALE_LOCK_S)


def age_of(path: str) -> float:
    """Seconds since a file was written; 0 for one that has gone meanwhile."""
    written = attempt(partial(os.stat, path))
    return time.time() - written.st_mtime if written else 0.0


def system_facts(request: Json) -> Json:
    """The machine below the interpreter."""
    return {
        "glibc": (attempt(lambda: os.confstr("CS_GNU_LIBC_VERSION")) or "").replace("glibc ", ""),
        "shm": space("/dev/shm"),
        "disk": space(request["folder"]),
        "cuda_home": toolkit(),
        "places": places(request["folder"]),
        "memory": memory(),
        "limits": limits(),
        "fabric": fabric(),
        "interfaces": attempt(lambda: sorted(os.listdir("/sys/class/net"))),
        "build_locks": build_locks(),
        "cores": len(os.sched_getaffinity(0)),
    }
