"""Keep two sweeps off one host, and say that servers are still wanted."""

from __future__ import annotations

import os
import time

from .files import Json, guarded, read_json, write_json


def holding(path: str) -> Json:
    """Who holds the lock, and when last a sign of life came; None where it is free or expired."""
    held = read_lock(path)
    age_s = time.time() - os.stat(path).st_mtime if held else 0.0
    return (
        {**held, "renewed_ago_s": round(age_s, 1)} if held and age_s <= held["expiry_s"] else None
    )


def holder(request: Json) -> Json:
    """Who holds the host's lock, without a wish to have it."""
    return {"holder": holding(os.path.join(request["run_folder"], "lock.json"))}


def read_lock(path: str) -> Json:
    """Read the lock; None where there is none, or it is damaged: nobody can own that."""
    try:
        held = read_json(path)
        return held if {"token", "owner", "expiry_s", "since"} <= set(held or ()) else None
    except ValueError:
        return None


def lock(request: Json) -> Json:
    """Take the host's lock, or tell who holds it since when; one not renewed has expired."""
    path = os.path.join(request["run_folder"], "lock.json")
    with guarded(os.path.join(request["run_folder"], "lock.guard")):
        held = holding(path)
        if held and held["token"] != request["token"]:
            return {"taken": False, "holder": held}
        keys = ("token", "owner", "expiry_s")
        write_json(path, {**{key: request[key] for key in keys}, "since": time.time()})
    return {"taken": True, "holder": None}


def unlock(request: Json) -> Json:
    """Give the lock back if it is ours."""
    path = os.path.join(request["run_folder"], "lock.json")
    with guarded(os.path.join(request["run_folder"], "lock.guard")):
        held = read_lock(path)
        if held and held["token"] == request["token"]:
            os.remove(path)
    return {}


def renew(request: Json) -> Json:
    """Say that these servers, and the lock, are still wanted; tell whether the lock is ours."""
    for folder in request["folders"]:
        if os.path.exists(os.path.join(folder, "lease")):
            os.utime(os.path.join(folder, "lease"))
    path = os.path.join(request["run_folder"], "lock.json")
    with guarded(os.path.join(request["run_folder"], "lock.guard")):
        lock = read_lock(path)
        ours = lock is not None and lock["token"] == request["token"]
        if ours:
            os.utime(path)
    return {"ours": ours}
