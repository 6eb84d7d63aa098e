"""Answer the request: try everything, and leave no process behind.

The request is JSON in the first argument, the answer JSON in the last line of the output.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
from functools import partial
from importlib import metadata

from .extensions import UNDEFINED, examine, readable
from .jobs import PR_SET_CHILD_SUBREAPER, Job, Json, attempt, end_descendants, run_jobs
from .launcher import cache_path, recall, remember
from .machine import places, system_facts, system_name, xids
from .models import ask_model
from .packages import ask_driver, find, installed, requirements, try_import, unmentioned
from .startup import forced, own_modules, set_at_start, variables
from .toolkit import builders, libraries, loader_cache, tool_jobs


def gather(request: Json) -> Json:
    """Try everything and put the answer together."""
    wheels = installed()
    remembered = cache_path(request, wheels)
    help_text = recall(remembered)
    cache = loader_cache()
    jobs = to_try(request, cache, asks_help=not help_text)
    run_jobs(jobs, max(2, min(len(os.sched_getaffinity(0)), request["at_once"])))
    outcomes = {job.name: job.outcome for job in jobs}
    if not help_text:
        help_text = outcomes["help"]
        if help_text["code"] == 0:
            remember(remembered, help_text)
    missed = [
        f
        for fault in outcomes["extensions"].get("value", {}).get("faults", [])
        for f in fault["libraries"]
    ]
    failures = "\n".join(f"{name}: cannot open shared object" for name in missed)
    failures += "\n".join(str(o.get("error", "")) + o["stderr"] for o in outcomes.values())
    return {
        "executable": sys.executable,
        "python": platform.python_version(),
        "platform": system_name(),
        "wheels": wheels,
        "requires": attempt(lambda: metadata.requires("sglang")) or [],
        "requirements": requirements(request["requirements"]),
        "imports": {n: outcomes[n] for n in request["imports"] if n in outcomes},
        "extensions": outcomes["extensions"],
        "driver": outcomes["driver"],
        "tools": {n[5:]: o for n, o in outcomes.items() if n[:5] == "tool "},
        "builders": builders(),
        "models": {n[6:]: o for n, o in outcomes.items() if n[:6] == "model "},
        "help": help_text,
        "env": variables(),
        "startup": {
            "files": own_modules(),
            "sets": attempt(set_at_start) or {},
            "forced": outcomes["forced"].get("value") or [],
        },
        "ldconfig": {n: p for n, p in cache.items() if n.startswith(tuple(request["cached"]))},
        "nccl": outcomes["nccl"],
        "libraries": libraries(failures),
        "symbols": {n: readable(n.encode()) for n in set(UNDEFINED.findall(failures))},
        "system": system_facts(request),
        "xids": outcomes["xids"].get("value"),
    }


def to_try(request: Json, cache: dict[str, list[str]], *, asks_help: bool) -> list[Job]:
    """The jobs, those that take longest first."""
    limit_s = request["timeout_s"]
    asked = [request["interpreter"], *request["launch"], "--help"]
    jobs = [Job("help", request["help_timeout_s"], argv=asked)] if asks_help else []
    present = [name for name in request["imports"] if find(name) is not None]
    imports = {name: Job(name, limit_s, function=partial(try_import, name)) for name in present}
    torch = imports.get("torch")

    def loaded() -> list[str]:
        value = torch.outcome.get("value") if torch else None
        return value["loaded"] if value else []

    def look() -> Json:
        return examine(request["extended"], loaded(), cache)

    def search() -> Json:
        return unmentioned(request["nccl"], loaded())

    hub = places(request["folder"])["hub cache"]["path"]
    jobs += imports.values()
    jobs.append(Job("extensions", limit_s, function=look, after=torch))
    jobs.append(Job("nccl", limit_s, function=search, after=torch))
    sets = partial(forced, list(attempt(set_at_start) or {}), request["interpreter"])
    jobs.append(Job("forced", limit_s, function=sets))
    jobs.append(Job("driver", limit_s, function=ask_driver))
    jobs.append(Job("xids", 15.0, function=xids))
    models = request["models"]
    jobs += [Job(f"model {m}", limit_s, function=partial(ask_model, m, hub)) for m in models]
    return [*jobs, *tool_jobs(limit_s)]


def main() -> None:
    """Answer the request, and leave no process behind."""
    request = json.loads(sys.argv[1])
    os.chdir("/")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        answer = gather(request)
    finally:
        end_descendants()
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
