"""What dead servers leave behind: build locks that nobody holds, shared memory that nobody maps."""

from __future__ import annotations

import fnmatch
import glob
import os
import time
from typing import Iterator  # noqa: UP035 - Python 3.8 on the host

from .files import Json, read_json
from .processes import nested_pids, users

CACHES = (
    ("TORCH_EXTENSIONS_DIR", "{cache}/torch_extensions"),
    ("FLASHINFER_WORKSPACE_BASE", "{cache}/flashinfer"),
    ("TRITON_CACHE_DIR", "{home}/.triton/cache"),
    ("TORCHINDUCTOR_CACHE_DIR", "{cache}/torchinductor"),
    ("DG_JIT_CACHE_DIR", "{home}/.deep_gemm"),
    ("SGLANG_DG_CACHE_DIR", "{cache}/deep_gemm"),
    ("TVM_FFI_CACHE_DIR", "{cache}/tvm-ffi"),
    ("SGLANG_CACHE_DIR", "{cache}/sglang"),
)
"""Where kernels are built: the variable that moves the folder, and where it is without it."""

DEPTH = 6
SEGMENTS = ("nccl-*", "psm_*", "torch_*", "sem.mp-*", "sglang*", "cuda.shm.*")
"""Names of shared memory that NCCL, Python, torch and CUDA give; others are somebody else's."""

GRACE_S = 5.0


def build_folders(env: Json) -> list[str]:
    """The folders in which a server with this environment builds kernels."""
    home = os.path.expanduser("~")
    known = {**os.environ, **env}
    cache = known.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return [known.get(name) or place.format(cache=cache, home=home) for name, place in CACHES]


def lock_files(env: Json) -> Iterator[str]:
    """Lock files of ours in the folders where kernels are built."""
    for top in build_folders(env):
        for folder, folders, names in os.walk(top):
            if folder[len(top) :].count(os.sep) >= DEPTH:
                folders.clear()
            for name in names:
                path = os.path.join(folder, name)
                if (name == "lock" or name.endswith(".lock")) and _is_ours(path):
                    yield path


def _is_ours(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.getuid()
    except OSError:
        return False


def opened(paths: list[str]) -> dict[str, int]:
    """Those of the paths that a living process has open or maps, with its pid."""
    wanted = {os.path.realpath(path): path for path in paths}
    return {wanted[path]: pid for path, pid in users(set(wanted)).items()}


def stale_locks(env: Json) -> tuple[list[str], dict[str, int]]:
    """Build locks whose owner is dead, and those that somebody holds, with the pid."""
    paths = list(lock_files(env))
    held = opened(paths)
    return [path for path in paths if path not in held], held


def dead_segments(launches: str) -> list[str]:
    """Shared memory that our dead servers left: made while one of them ran, mapped by nobody.

    A container that shares the machine's memory can't see who else maps it, and leaves it alone.
    """
    spans = [] if nested_pids() and _has_the_machines_ipc() else list(_lives(launches))
    paths = [
        path
        for path in glob.glob("/dev/shm/*")
        if any(fnmatch.fnmatch(os.path.basename(path), name) for name in SEGMENTS)
        and _is_ours(path)
        and any(begin <= os.stat(path).st_ctime <= end for begin, end in spans)
    ]
    used = opened(paths)
    return [path for path in paths if path not in used]


def _has_the_machines_ipc() -> bool:
    try:
        return os.readlink("/proc/self/ns/ipc") == "ipc:[4026531839]"
    except OSError:
        return False


def _lives(launches: str) -> Iterator[tuple[float, float]]:
    """When each server of this run folder that has ended began and ended."""
    for path in glob.glob(os.path.join(glob.escape(launches), "**", "exit.json"), recursive=True):
        begin = os.path.join(os.path.dirname(path), "launch.json")
        end = read_json(path)
        if end and os.path.exists(begin):
            yield os.stat(begin).st_mtime, end["at"] + GRACE_S


def tidy(request: Json) -> Json:
    """Move build locks without an owner aside."""
    done = []
    for path in stale_locks(request["env"])[0]:
        os.rename(path, f"{path}.stale-{int(time.time())}")
        done.append(path)
    return {"done": done}
