"""What must hold on the host before a remedy is tried."""

from __future__ import annotations

import glob
import os
import subprocess
from typing import Callable  # noqa: UP035 - Python 3.8 on the host

from .files import Json, read_json
from .leftovers import dead_segments, stale_locks

ROOM_BYTES = 1 << 30
"""Free space without which another cache folder is no help."""


def check(request: Json) -> Json:
    """Tell of each requirement that doesn't hold why."""
    reasons = [CHECKS[one["need"]](one, request) for one in request["requirements"]]
    return {"unmet": [reason for reason in reasons if reason]}


def _program(one: Json, _: Json) -> str:
    there = os.path.isfile(one["what"]) and os.access(one["what"], os.X_OK)
    return "" if there else f"{one['what']} is not a program on this host"


def _knows(one: Json, _: Json) -> str:
    """Ask a program whether its help names something."""
    try:
        run = subprocess.run(
            [one["what"], "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{one['what']} can't be run"
    known = one["text"].encode() in run.stdout
    return "" if known else f"{one['what']} doesn't know {one['text']} either"


def _file(one: Json, _: Json) -> str:
    return "" if glob.glob(one["what"]) else f"there is no {one['what']}"


def _writable(one: Json, _: Json) -> str:
    """Whether a folder can be made or written, with some room."""
    folder = one["what"]
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} is not writable"
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    return "" if free >= ROOM_BYTES else f"{folder} has only {free >> 20} MiB left"


def _snapshot(one: Json, request: Json) -> str:
    """Whether the hub's cache holds every file of a model that its index names."""
    known = {**os.environ, **request["env"]}
    home = known.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    hub = known.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    name = "models--" + (one["what"] or request["model"]).replace("/", "--")
    found = glob.glob(os.path.join(glob.escape(os.path.join(hub, name)), "snapshots", "*"))
    if any(map(_whole, found)):
        return ""
    return f"{hub} holds no whole snapshot of {one['what'] or request['model']}"


def _whole(folder: str) -> bool:
    index = read_json(os.path.join(folder, "model.safetensors.index.json"))
    weights = set(index["weight_map"].values()) if index else {"*.safetensors"}
    wanted = [os.path.join(glob.escape(folder), name) for name in ("config.json", *weights)]
    return all(any(map(os.path.exists, glob.glob(path))) for path in wanted)


def _stale_lock(_: Json, request: Json) -> str:
    stale, held = stale_locks(request["env"])
    if stale:
        return ""
    if held:
        path, pid = sorted(held.items())[0]
        return f"process {pid} lives and holds {path}"
    return "no build lock is left over"


def _dead_segment(_: Json, request: Json) -> str:
    found = dead_segments(request["launches"])
    return "" if found else "no shared memory of our dead servers is left over"


CHECKS: dict[str, Callable[[Json, Json], str]] = {
    "program": _program,
    "knows": _knows,
    "file": _file,
    "writable": _writable,
    "snapshot": _snapshot,
    "stale_lock": _stale_lock,
    "dead_segment": _dead_segment,
}
