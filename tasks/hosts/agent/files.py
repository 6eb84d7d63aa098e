"""Read and write files of the host so that none is ever seen half."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import shutil
from typing import Any

Json = Any


class guarded:
    """Keep two callers on this host apart while one looks at a file or changes it."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.file = open(path, "w")  # noqa: SIM115

    def __enter__(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()


def read_bytes(path: str) -> bytes:
    """Read a file whole; empty when it is gone or not ours to read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def read_json(path: str) -> Json:
    """Read a JSON object; None when there is none."""
    text = read_bytes(path)
    return json.loads(text) if text else None


def write_json(path: str, content: Json) -> None:
    """Write a file so that it appears whole or not at all."""
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(beside, path)


def slice_of(path: str, offset: int, limit: int) -> bytes:
    """Part of a file; empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(limit)
    except OSError:
        return b""


def size_of(path: str) -> int:
    """Bytes in a file, 0 where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def read(request: Json) -> Json:
    """Part of a file, as base64, with its whole size."""
    data = slice_of(request["path"], request["offset"], request["limit"])
    return {"data": base64.b64encode(data).decode(), "bytes": size_of(request["path"])}


def write(request: Json) -> Json:
    """Write a file whole, with its folder."""
    path = request["path"]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    beside = f"{path}.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(base64.b64decode(request["data"]))
    os.chmod(beside, 0o755 if request["executable"] else 0o644)
    os.rename(beside, path)
    return {}


def install(request: Json) -> Json:
    """Put a set of text files into a folder, whole or not at all; tell the hash of what is there.

    A folder that is there already is left as it is: its name is its contents' hash.
    """
    folder, names = request["folder"], sorted(request["files"])
    if not os.path.isdir(folder):
        beside = f"{folder}.{os.getpid()}"
        for name in names:
            os.makedirs(os.path.dirname(os.path.join(beside, name)), exist_ok=True)
            with open(os.path.join(beside, name), "w") as file:
                file.write(request["files"][name])
        try:
            os.rename(beside, folder)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)  # another sweep was faster
    found = {name: read_bytes(os.path.join(folder, name)).decode() for name in names}
    text = json.dumps(found, sort_keys=True)
    return {"digest": hashlib.sha256(text.encode()).hexdigest()}


def remove(request: Json) -> Json:
    """Remove a folder of ours with all that is in it; nothing to do is fine."""
    folder, within = os.path.realpath(request["folder"]), os.path.realpath(request["within"])
    if not folder.startswith(within + os.sep):
        return {"error": f"{folder} is not within {within}"}
    shutil.rmtree(folder, ignore_errors=True)
    return {}
