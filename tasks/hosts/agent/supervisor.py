"""Start a server detached, and be the parent that records its end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

from .files import Json, guarded, read_json, write_json
from .processes import MARK, RUN, boot_id, end, marked, stat_fields
from .traces import Traces

PR_SET_CHILD_SUBREAPER = 36


def start(request: Json) -> Json:
    """Start a program detached, under a supervisor that outlives us, and tell its pid.

    The same order, asked for again, is answered with what it started: the first answer may have
    been lost on its way.
    """
    folder = request["folder"]
    os.makedirs(folder, exist_ok=True)
    with guarded(os.path.join(folder, "start.guard")):
        known = read_json(os.path.join(folder, "launch.json")) or {}
        if known.get("order") != request["order"]:
            for name in ("process.json", "exit.json"):
                if os.path.exists(os.path.join(folder, name)):
                    os.remove(os.path.join(folder, name))
            write_json(os.path.join(folder, "launch.json"), request)
            open(os.path.join(folder, "lease"), "w").close()
        if read_json(os.path.join(folder, "process.json")) is None:
            detach(folder)
        for _ in range(400):
            process = read_json(os.path.join(folder, "process.json"))
            if process is not None:
                return process
            time.sleep(0.025)
    return {"error": "the supervisor did not start within 10 s"}


def detach(folder: str) -> None:
    """Start a supervisor; of two for the same order, the second leaves at once."""
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", os.path.abspath(sys.argv[0]), "supervise", folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != RUN},
        start_new_session=True,
        close_fds=True,
        cwd="/",
    )


def spawn(request: Json, folder: str) -> subprocess.Popen[bytes]:
    """Start the program itself in a session of its own, its output in the log.

    SPT_NOENV keeps the setproctitle package, by which SGLang names its processes, from writing over
    the environment that /proc shows: the marker is in there, and without it they are nobody's.
    """
    env = {**os.environ, **request["env"], MARK: request["mark"], "SPT_NOENV": "1"}
    with open(os.path.join(folder, "server.log"), "wb") as log:
        return subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            cwd=request.get("cwd") or folder,
        )


def supervise(folder: str) -> None:
    """Be the parent of a server: record its end, and end it when nobody renews the lease."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    request = read_json(os.path.join(folder, "launch.json"))
    if not claimed(os.path.join(folder, "supervisor-" + request["order"])):
        return
    traces = Traces(request["traces"], folder, request["mark"])
    try:
        server = spawn(request, folder)
    except OSError as error:
        with open(os.path.join(folder, "server.log"), "a") as log:
            log.write(f"{request['argv'][0]}: {error.strerror}\n")
        write_json(os.path.join(folder, "exit.json"), {"code": 127, "at": time.time()})
        write_json(os.path.join(folder, "process.json"), {"pid": 0, "start_ticks": 0})
        return
    fields = stat_fields(server.pid)
    process = {"pid": server.pid, "start_ticks": int(fields[19]), "boot_id": boot_id()}
    write_json(os.path.join(folder, "process.json"), {**process, "mark": request["mark"]})
    code, lease_over, lease = None, False, Lease(os.path.join(folder, "lease"))
    while code is None or marked(request["mark"]):
        if code is None:
            code = server.poll()
            if code is not None:
                ended_by = "lease" if lease_over else ""
                end_of = {"code": code, "at": time.time(), "ended_by": ended_by}
                write_json(os.path.join(folder, "exit.json"), end_of)
        else:
            reap()
        traces.look_if_due()
        if lease.age_s() > request["lease_s"]:
            lease_over = True
            traces.look()
            end(lambda: marked(request["mark"]), request["grace_s"])
        time.sleep(0.02 if code is None else 0.25)


def claimed(path: str) -> bool:
    """Whether this is the first supervisor of an order."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def reap() -> None:
    """Collect the orphans that fell to us."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


class Lease:
    """How long ago somebody last said that the server is still wanted.

    A renewal is seen by the file's time changing, and its age counted on a clock that nobody sets:
    a wall clock that is put right must not end a server.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.renewed = self.stamp()
        self.seen_at = time.monotonic()

    def stamp(self) -> int | None:
        try:
            return os.stat(self.path).st_mtime_ns
        except OSError:
            return None

    def age_s(self) -> float:
        """Seconds since the last renewal that was seen; a lease that is taken away is over."""
        stamp = self.stamp()
        if stamp is None:
            return float("inf")
        if stamp != self.renewed:
            self.renewed, self.seen_at = stamp, time.monotonic()
        return time.monotonic() - self.seen_at
