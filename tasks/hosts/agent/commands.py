"""The questions that the agent answers."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from typing import Callable  # noqa: UP035 - Python 3.8 on the host

from . import devices, traces
from .files import Json, install, read, read_json, remove, size_of, slice_of, write
from .leftovers import tidy
from .lock import holder, lock, renew, unlock
from .processes import (
    alive,
    ancestors,
    boot_id,
    cpu_s,
    described,
    end,
    listeners,
    marked,
    name_of,
    nested_pids,
    port_holders,
)
from .recorder import record
from .requirements import check
from .supervisor import start, supervise

NEWS_S = 0.5
"""How long the first new line of a log waits for company."""

RECORD_S = 0.3
"""How long a server's end waits for its supervisor to record it: another look would cost more."""


def hello(_: Json) -> Json:
    """Who and where this is."""
    return {
        "home": os.path.expanduser("~"),
        "uid": os.getuid(),
        "hostname": os.uname().nodename,
        "boot_id": boot_id(),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "ancestors": ancestors(),
        "nested_pids": nested_pids(),
    }


def clock(_: Json) -> Json:
    """What CLOCK_MONOTONIC shows now."""
    return {"monotonic_ns": time.monotonic_ns()}


def watch(request: Json) -> Json:
    """How a server is: its state, the new part of its log, its CPU time, who has its port.

    Answers at once when the server has ended, or one of the processes `need`, and otherwise after
    `wait_s` at the latest; with `news` as soon as the log has more.
    """
    folder = request["folder"]
    process = read_json(os.path.join(folder, "process.json")) or {"pid": 0, "start_ticks": 0}
    log = os.path.join(folder, "server.log")
    offset = request["offset"] if request["news"] else sys.maxsize
    await_news(process, log, offset, request["wait_s"], request["need"])
    running = alive(process["pid"], process["start_ticks"])
    exited = read_json(os.path.join(folder, "exit.json"))
    began = time.monotonic()
    while not running and process["pid"] and exited is None and time.monotonic() - began < RECORD_S:
        time.sleep(0.01)
        exited = read_json(os.path.join(folder, "exit.json"))
    data = slice_of(log, request["offset"], request["limit"])
    family = marked(request["mark"])
    return {
        "running": running,
        "exit_code": exited["code"] if exited else None,
        "ended_by": exited.get("ended_by", "") if exited else "",
        "log": base64.b64encode(data).decode(),
        "log_bytes": size_of(log),
        "family": [[pid, name_of(pid)] for pid, _ in family],
        "cpu_s": sum(cpu_s(pid) for pid, _ in family),
        "port_holders": port_holders(request["port"], [pid for pid, _ in family]),
    }


def await_news(process: Json, log: str, offset: int, wait_s: float, need: list[int]) -> None:
    """Wait until a server or one of its workers has ended, or the log has more than a new line."""
    began = time.monotonic()
    while alive(process["pid"], process["start_ticks"]) and all(map(alive, need)):
        waited = time.monotonic() - began
        if waited >= wait_s or (waited >= NEWS_S and size_of(log) > offset):
            return
        time.sleep(0.03)


def stop(request: Json) -> Json:
    """End every process whose marker begins with `mark`, and verify that it is gone."""
    return end(lambda: marked(request["mark"]), request["grace_s"])


def kill(request: Json) -> Json:
    """End the processes named as (pid, start ticks), and verify that they are gone."""
    named = [(pid, ticks) for pid, ticks in request["targets"]]
    return end(lambda: [t for t in named if alive(*t)], request["grace_s"])


def holders(request: Json) -> Json:
    """Every process that holds one of the device files."""
    return {"holders": devices.holders(request["devices"])}


def occupants(request: Json) -> Json:
    """Every holder of a device file, and every process launched from this run folder.

    A marker alone doesn't make a process this host's: another run folder's sweep on the same
    machine bears markers too, and its servers are in use.
    """

    def launched(mark: str) -> bool:
        return os.path.isdir(os.path.join(request["launches"], mark.rstrip("/")))

    found = devices.holders(request["devices"])
    seen = {process["pid"] for process in found}
    rest = described([target for target in marked("") if target[0] not in seen])
    found += [process for process in rest if process["mark"] and launched(process["mark"])]
    for process in found:
        process["launched_here"] = process["mark"] is not None and launched(process["mark"])
    return {"processes": found}


def leftovers(request: Json) -> Json:
    """What dead launches have left behind outside their folders."""
    return {"leftovers": list(traces.leftovers(request["folder"]))}


def remove_leftovers(request: Json) -> Json:
    """Take that away; what was."""
    return {"leftovers": list(traces.remove_leftovers(request["folder"]))}


def ours(request: Json) -> Json:
    """Every process of ours whose marker begins with `mark`."""
    return {"processes": described(marked(request["mark"]))}


def free_port(request: Json) -> Json:
    """The first of so many ports in a row, from `first` on, that nobody listens on."""
    first, taken = request["first"], set(request["avoid"])
    for port in range(first, first + 1000):
        row = range(port, port + request["in_a_row"])
        if taken.isdisjoint(row) and not any(map(listeners, row)):
            return {"port": port}
    return {"error": f"no free port among {first} and the 999 after it"}


COMMANDS: dict[str, Callable[[Json], Json]] = {
    command.__name__: command
    for command in (
        hello, clock, start, watch, renew, stop, kill, holders, ours, occupants, read, write,
        free_port, lock, unlock, holder, install, remove, leftovers, remove_leftovers,
        check, tidy,
    )
}  # fmt: skip


def main() -> None:
    """Answer one question, or do what lasts: supervise one server, record one program."""
    if sys.argv[1] == "supervise":
        supervise(sys.argv[2])
        return
    if sys.argv[1] == "record":
        record(json.loads(sys.argv[2]))
        return
    try:
        answer = COMMANDS[sys.argv[1]](json.load(sys.stdin))
    except OSError as error:
        answer = {"error": f"{error.strerror}: {error.filename}"}
    json.dump(answer, sys.stdout)
