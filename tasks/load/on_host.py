"""Run a load on the host itself: ship the capture program there, and bring back what it captured.

The processes run detached, so that a connection which breaks disturbs nothing: what they tell is
read from their log, from where the last look ended, and the captured files when all is over.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from tasks.domain.errors import HostError
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold
from tasks.hosts.parts import parts_of
from tasks.load.workers import CaptureFacts, CaptureFailed, Job, Watcher, merge, watched

LOOK_S = 2.0
"""How long one look at the load takes: each is a program that starts beside the server."""

_BOOT = "import sys; sys.path.append(sys.argv[1]); from capture.conduct import main; main()"
_GRACE_S = 2.0
_UNRECORDED_S = 0.5  # until the end of a process that has just ended is asked for again


@dataclass(slots=True, eq=False)
class FarWorker:
    """A process of the load on the host, and the last it told."""

    progress: dict[str, Any] = field(default_factory=dict)
    ended: list[list[int]] = field(default_factory=list)
    facts: dict[str, Any] | None = None
    wish: bytes = b""

    def say(self, line: bytes) -> None:
        """Keep what it is to be told until the next look."""
        self.wish = line


@dataclass(frozen=True, slots=True)
class HostCapture:
    """Captures on the host, in the stead of `tasks.load.workers.capture`.

    `mark` is the marker of the load's processes, `port` where the server listens there.
    """

    hold: Hold
    mark: str
    port: int

    @property
    def host(self) -> Host:
        """The host that serves and is loaded."""
        return self.hold.host

    async def __call__(self, jobs: Sequence[Job], folder: Path, watch: Watcher) -> CaptureFacts:
        """Carry out the jobs on the host while `watch` looks on; their files end up in `folder`."""
        there = self.host.launch_folder(self.mark)
        package = await self._shipped()
        await self._clear(there)
        try:
            for number, job in enumerate(jobs):
                path = Path(f"{there}/streams-{number}")
                far = replace(job, host="127.0.0.1", port=self.port, path=path)
                await self.host.write(f"{there}/job-{number}", far.encode())
            await self._start(package, there)
            workers = [FarWorker() for _ in jobs]
            await watched(self._follow(workers, there), workers, watch)
            for number, job in enumerate(jobs):
                await self._fetch(f"{there}/streams-{number}", job.path)
            return merge([worker.facts for worker in workers if worker.facts is not None])
        finally:
            # Once the files are here, a host that goes away must not cost what was measured: the
            # load's lease ends what still runs, and the next load clears the folder.
            with contextlib.suppress(HostError):
                await asyncio.shield(self._end(there))

    async def _shipped(self) -> str:
        """Where the capture package is on the host; it is put there once for the whole sweep."""
        if "capture" not in self.hold.programs:
            self.hold.programs["capture"] = await ship(self.host)
        return self.hold.programs["capture"]

    async def _start(self, package: str, there: str) -> None:
        self.hold.folders.add(there)
        await self.host.start(
            [self.host.transport.python, "-I", "-S", "-B", "-c", _BOOT, package, there],
            env={},
            folder=there,
            mark=self.mark,
            lease_s=self.hold.lease_s,
            grace_s=_GRACE_S,
        )

    async def _follow(self, workers: Sequence[FarWorker], there: str) -> None:
        """Read what the processes tell until they have ended."""
        offset, rest, wished = 0, b"", b""
        while True:
            seen = await self.host.watch(there, self.mark, offset, wait_s=LOOK_S, news=False)
            offset += len(seen.log)
            *lines, rest = (rest + seen.log).split(b"\n")
            for line in lines:
                _take_in(workers, line)
            if seen.exit_code is not None and offset >= seen.log_bytes:
                _see_all_ended(workers, seen.exit_code, rest)
                return
            wish = next((worker.wish for worker in workers if worker.wish), b"")
            if wish != wished:
                wished = wish
                reason = wish.removeprefix(b"stop ").strip()
                await self.host.write(f"{there}/stop", reason)
            if not seen.running:
                await asyncio.sleep(_UNRECORDED_S)

    async def _fetch(self, path: str, here: Path) -> None:
        """Bring a captured file here, part by part."""
        with here.open("wb") as file:
            async for part in parts_of(self.host, path):
                file.write(part)

    async def _end(self, there: str) -> None:
        """End what is left of the load, and take its files away."""
        self.hold.folders.discard(there)
        await self.host.stop(self.mark, _GRACE_S)
        await self._clear(there)

    async def _clear(self, there: str) -> None:
        await self.host.ask("remove", {"folder": there, "within": self.host.launch_folder("")})


async def ship(host: Host) -> str:
    """Put the capture package on the host, and verify that it is the one that we have.

    Returns the folder that holds it. Raises `HostError` where it is another one.
    """
    package = resources.files("tasks.load.capture")
    names = sorted(item.name for item in package.iterdir() if item.name.endswith(".py"))
    files = {f"capture/{name}": (package / name).read_text() for name in names}
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    folder = f"{host.run_folder}/capture-{digest[:12]}"
    answer = await host.ask("install", {"folder": folder, "files": files})
    if answer["digest"] != digest:
        raise HostError(host.name, f"{folder} isn't what was put there; remove it and try again")
    return folder


def _take_in(workers: Sequence[FarWorker], line: bytes) -> None:
    """Learn from one line that the conductor passed on. Raises `CaptureFailed` where it says so."""
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict) or "event" not in message:
        return  # no message of ours: what a crash wrote is told when it has ended
    worker = workers[message["worker"]]
    match message["event"]:
        case "failed":
            raise CaptureFailed(message["code"], message["why"])
        case "end":
            worker.facts = message
        case "progress":
            worker.ended += message.pop("ended")
            worker.progress = message


def _see_all_ended(workers: Sequence[FarWorker], code: int, rest: bytes) -> None:
    if any(worker.facts is None for worker in workers):
        raise CaptureFailed(code, rest.decode(errors="replace"))
