"""Know who holds device files: open, or mapped into memory after the file was closed."""

from __future__ import annotations

import glob
import os
import re
import stat

from .files import Json, read_bytes
from .processes import describe, pids, stat_fields

_CONTAINERS = (
    re.compile(r"(docker|libpod|crio|containerd)[-/:]([0-9a-f]{12})[0-9a-f]{52}"),
    re.compile(r"/(lxc)(?:\.payload)?[./]([^/\s]+)"),
    re.compile(r"/kube(pod)\S*/([0-9a-f]{12})[0-9a-f]{52}"),
)
"""How the cgroup of a container's process reads: what manages the container, and its name."""


class Devices:
    """The device files that a pattern names now."""

    def __init__(self, pattern: str) -> None:
        self.paths: list[str] = []
        self.by_identity: dict[tuple[str, int, int], str] = {}
        self.by_place: dict[tuple[str, int], str] = {}
        for path in sorted({os.path.realpath(path) for path in glob.glob(pattern)}):
            try:
                status = os.stat(path)
            except OSError:
                continue
            self.paths.append(path)
            self.by_identity[identity(status)] = path
            self.by_place[place(status)] = path
        self.names = {os.path.basename(path) for path in self.paths}
        self.words = {name.encode() for name in self.names}

    def held_by(self, pid: int) -> list[str]:
        """Those that a process holds; a container may call the same device by another path."""
        return sorted(self._open(pid) | self._mapped(pid))

    def _open(self, pid: int) -> set[str]:
        folder, found = f"/proc/{pid}/fd", set()
        try:
            numbers = os.listdir(folder)
        except OSError:
            return set()
        for number in numbers:
            try:
                # Only what is named like a device is looked up: a dead network disk would block.
                if os.path.basename(os.readlink(f"{folder}/{number}")) in self.names:
                    found.add(self.by_identity.get(identity(os.stat(f"{folder}/{number}")), ""))
            except OSError:
                continue
        return found - {""}

    def _mapped(self, pid: int) -> set[str]:
        maps = read_bytes(f"/proc/{pid}/maps")
        if not any(word in maps for word in self.words):
            return set()
        found = set()
        for line in maps.splitlines():
            fields = line.split(None, 5)
            if len(fields) == 6 and os.path.basename(fields[5]) in self.words:
                path = os.fsdecode(fields[5])
                known = path if path in self.paths else ""
                found.add(self.by_place.get((fields[3].decode(), int(fields[4])), known))
        return found - {""}


def identity(status: os.stat_result) -> tuple[str, int, int]:
    """What two names of one device have in common; a stand-in that is a plain file is itself."""
    if stat.S_ISCHR(status.st_mode):
        return "device", status.st_rdev, 0
    return "file", status.st_dev, status.st_ino


def place(status: os.stat_result) -> tuple[str, int]:
    """How a file's place reads in /proc/PID/maps."""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino


def container_of(pid: int) -> str:
    """The container that a process runs in, seen from here; nothing where it is none."""
    named = container_in(read_bytes(f"/proc/{pid}/cgroup").decode(errors="replace"))
    if named:
        return named
    try:
        elsewhere = os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return "a container" if elsewhere else ""


def container_in(cgroup: str) -> str:
    """The container that a cgroup's path names: `lxc 129`, `docker 3f1c9a04d2b7`, or nothing."""
    for pattern in _CONTAINERS:
        found = pattern.search(cgroup)
        if found is not None:
            return " ".join(found.groups())
    return ""


def holders(pattern: str) -> list[Json]:
    """Every process but us that holds one of the devices; one that ends meanwhile is none."""
    devices, found = Devices(pattern), []
    for pid in pids() if devices.paths else ():
        held = devices.held_by(pid) if pid != os.getpid() else []
        fields = stat_fields(pid) if held else []
        known = describe(pid, int(fields[19])) if fields else None
        if known is not None:
            found.append({**known, "devices": held, "container": container_of(pid)})
    return found
