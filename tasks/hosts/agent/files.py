"""Read and write files of the host so that none is ever seen half."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

Json = Any


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
