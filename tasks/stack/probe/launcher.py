"""SGLang's own launch options, asked once for each state of the stack."""

from __future__ import annotations

import hashlib
import json
import os
import sys

from .jobs import Json
from .packages import find


def cache_path(request: Json, wheels: dict[str, str]) -> str:
    """Where the launch options are remembered: anew whenever something of the stack changes."""
    source = os.path.join(os.path.dirname(find("sglang") or "/"), "srt", "server_args.py")
    changed = os.stat(source).st_mtime if os.path.exists(source) else 0
    key = [sys.version, sys.prefix, request["launch"], request["variables"], changed, wheels]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return os.path.join(request["folder"], "stack-cache", f"help-{digest}.json")


def recall(path: str) -> Json:
    """What was remembered, or None."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def remember(path: str, content: Json) -> None:
    """Keep an answer, whole or not at all; a disk that is full is no reason to fail."""
    beside = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(beside, "w") as file:
            json.dump(content, file)
        os.rename(beside, path)
    except OSError:
        return
