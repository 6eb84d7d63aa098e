"""Judge room and limits: disk, shared memory, memory, open files."""

from collections.abc import Iterator

from settings.nodes import most_nodes
from settings.sweep import Sweep
from tasks.domain.facts import Finding, PlaceFacts, Severity, StackFacts

LITTLE_DISK_BYTES = 5 << 30
LITTLE_CACHE_BYTES = 1 << 30
LITTLE_SHM_BYTES = 1 << 30
FEW_INODES = 10_000
FEW_FILES = 4096
RANK_BYTES = 4 << 30
"""What one rank takes of the host's memory besides the weights: Python, torch, CUDA's context."""


def check_space(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Room for logs and caches, once for each file system that several places share."""
    places = facts.system.places
    if not places and facts.system.disk_free_bytes is not None:
        places = {"run folder": PlaceFacts("", facts.system.disk_free_bytes)}
    said: set[tuple[int | None, int | None]] = set()
    for name, place in places.items():
        room = (place.free_bytes, place.free_inodes)
        if room not in said and _is_little(name, place):
            said.add(room)
            yield _little(name, place)
        if not place.writable:
            yield Finding(
                Severity.WARNING,
                f"the {name} can't be written: {place.path}",
                "",
                "set the host's run_folder to a folder of your own"
                if name == "run folder"
                else "make it writable, or set XDG_CACHE_HOME to a folder that is",
                "permission-denied-cache",
            )


def _is_little(name: str, place: PlaceFacts) -> bool:
    least = LITTLE_DISK_BYTES if name == "run folder" else LITTLE_CACHE_BYTES
    few = place.free_inodes is not None and place.free_inodes < FEW_INODES
    return few or (place.free_bytes is not None and place.free_bytes < least)


def _little(name: str, place: PlaceFacts) -> Finding:
    few = place.free_inodes is not None and place.free_inodes < FEW_INODES
    room = f"{place.free_inodes} inodes" if few else f"{(place.free_bytes or 0) / 2**30:.1f} GiB"
    return Finding(
        Severity.WARNING,
        f"{room} are free where the {name} lies",
        place.path,
        "make room, or set the host's run_folder to a larger disk"
        if name == "run folder"
        else "make room, or move the cache with its variable",
        "disk-full",
    )


def check_shm(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """NCCL's shared memory between ranks: too small for good, or full of what a crash left."""
    total, free = facts.system.shm_total_bytes, facts.system.shm_free_bytes
    if total is None:
        return
    severity = Severity.WARNING if len(facts.gpus) > 1 else Severity.INFO
    if total < LITTLE_SHM_BYTES:
        yield Finding(
            severity,
            f"/dev/shm is {total / 2**20:.0f} MiB",
            "",
            "start the container with --shm-size=16g or --ipc=host",
            "shm-too-small",
        )
    elif free is not None and free < LITTLE_SHM_BYTES:
        yield Finding(
            severity,
            f"/dev/shm is full: {free / 2**20:.0f} MiB of {total / 2**30:.1f} GiB are free",
            "",
            "remove the segments that crashed runs left (`ls -l /dev/shm`)",
            "shm-full-leaked-segments",
        )


def check_limits(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Open files, and the memory that a container may use."""
    _, hard = facts.system.limits.get("nofile", (-1, -1))
    if 0 <= hard < FEW_FILES:
        yield Finding(
            Severity.WARNING,
            f"a process may open {hard} files only, which one load of many clients exceeds",
            f"ulimit -Hn is {hard}",
            "raise nofile in /etc/security/limits.conf, or --ulimit nofile=65536 of the container",
        )
    limit, ranks = facts.system.memory_limit_bytes, _ranks(sweep)
    if limit is not None and ranks and limit < ranks * RANK_BYTES:
        yield Finding(
            Severity.WARNING,
            f"this container may use {limit / 2**30:.0f} GiB of memory, little for {ranks} ranks",
            "",
            "raise the container's memory limit",
            "host-oom-kill",
        )


def _ranks(sweep: Sweep | None) -> int:
    """The largest number of ranks that the sweep is known to launch on this host; 0 unknown."""
    args = dict(sweep.server.args) if sweep else {}
    named = [args.get(name) for name in ("tp", "tp_size", "tensor_parallel_size")]
    ranks = max((value for value in named if isinstance(value, int)), default=0)
    return ranks // most_nodes(sweep) if sweep else 0
