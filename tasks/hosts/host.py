"""A host as everything above sees it: commands, files, detached servers, the lock.

The same for a local and a remote machine: whatever needs more than running a command is asked of
the agent, a small program that is copied into the host's run folder.
"""

import asyncio
import base64
import hashlib
import json
import posixpath
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settings.host import Host as HostSettings
from tasks.domain.errors import ConnectionBroken, HostError
from tasks.hosts.shipped import END_RUNS, INSTALL, agent_files
from tasks.hosts.transport import Completed, Transport

MARK = "SGLANG_SWEEP_MARK"
RUN = "SGLANG_SWEEP_RUN"
"""Bears a command's own name in its environment, so that what it left behind can be ended."""

_RECORDER_GRACE_S = 1.0
_END_S = 20.0
"""How long ending a command that was given up may hold up whoever gave it up."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which machine, and who we are there; `ancestors` are the pids that lead to us.

    `nested_pids`: the pids here aren't the machine's own, as in a container.
    """

    home: str
    uid: int
    hostname: str
    boot_id: str
    python: str
    cores: int
    ancestors: list[int]
    nested_pids: bool


@dataclass(frozen=True, slots=True)
class Watched:
    """How a detached server is at one moment.

    `ended_by` is `lease` where the supervisor ended it because nobody renewed its lease. `log` is
    the part of the log from the asked offset on; `port_holders` is `nobody`, `ours` or
    `another`; `family` has pid and name of every process of the server, and `cpu_s` sums over them.
    """

    running: bool
    exit_code: int | None
    ended_by: str
    log: bytes
    log_bytes: int
    family: tuple[tuple[int, str], ...]
    cpu_s: float
    port_holders: str

    @property
    def processes(self) -> int:
        """How many processes the server is."""
        return len(self.family)


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process on a host; `mark` is None where no sweep started it.

    `launched_here` says that its launch lies in this host's run folder: two hosts of the settings
    may be the same machine, and what the other one started is none of our business.
    """

    pid: int
    start_ticks: int
    uid: int
    user: str
    name: str
    command: str
    age_s: float
    mark: str | None
    devices: tuple[str, ...] = ()
    launched_here: bool = False
    started_at: float = 0.0
    container: str = ""
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a dead launch has left outside its folder; `mark` is the launch's.

    `kind` is `shared memory` (a file of /dev/shm), `segment` (of System V, by its number) or
    `build lock`.
    """

    kind: str
    name: str
    mark: str
    bytes: int

    def __str__(self) -> str:
        """In words: `shared memory /dev/shm/psm_1, left by our run n/abc/1/`."""
        return f"{self.kind} {self.name}, left by our run {self.mark}"


@dataclass(frozen=True, slots=True)
class Ended:
    """What was ended, and what is still there in spite of SIGKILL."""

    ended: tuple[HostProcess, ...]
    left: tuple[HostProcess, ...]


class Host:
    """One machine with GPUs; make it with `tasks.hosts.connect.connect`."""

    def __init__(self, name: str, settings: HostSettings, transport: Transport) -> None:
        self.name = name
        self.settings = settings
        self.transport = transport
        self._agent = ""
        self._identity: Identity | None = None
        self._given_up: set[str] = set()
        self._ending = asyncio.Lock()

    @property
    def identity(self) -> Identity:
        """Which machine this is; known once `open` has returned."""
        if self._identity is None:
            raise HostError(self.name, "not connected")
        return self._identity

    @property
    def run_folder(self) -> str:
        """The absolute folder of everything of ours on this host."""
        return self.expand(self.settings.run_folder)

    def launch_folder(self, mark: str) -> str:
        """Where the files of the launch with this marker lie."""
        return f"{self.run_folder}/launches/{mark.rstrip('/')}"

    @property
    def _traces(self) -> str:
        """Where it is written down what launches have made outside their folders."""
        return f"{self.run_folder}/traces"

    def expand(self, path: str) -> str:
        """Replace a leading `~` by the home on the host."""
        return self.identity.home + path[1:] if path == "~" or path.startswith("~/") else path

    async def open(self) -> None:
        """Reach the host and put the agent there; its folder's name is its contents' hash."""
        files = agent_files()
        digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:12]
        folder = posixpath.join(self.settings.run_folder, f"agent-{digest}")
        completed = await self.run(
            [self.transport.python, "-I", "-S", "-c", INSTALL],
            stdin=json.dumps([folder, files]).encode(),
            repeatable=True,
        )
        if not completed.ok:
            raise HostError(self.name, f"can't write the run folder: {_last_line(completed)}")
        self._agent = completed.stdout.decode().strip()
        self._identity = Identity(**await self.ask("hello", {}))

    async def close(self) -> None:
        """Let go of the connection."""
        await self.transport.close()

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        max_output_bytes: int = 16 << 20,
        repeatable: bool = False,
    ) -> Completed:
        """Run a command with the host's prefix and variables; one that is given up is ended there.

        One that is `repeatable` is run again when the connection broke and has been mended.
        Raises `HostError` where the command can't be started.
        """
        variables = {**self.settings.env, **(env or {})}
        command = [self.expand(argv[0]) if self._identity else argv[0], *argv[1:]]
        order = _Order(_inside(variables, command), stdin, timeout_s, max_output_bytes)
        completed = await self._run_again(order, repeatable=repeatable)
        if completed.exit_code in (126, 127) and completed.stderr.startswith(b"env: "):
            reason = _last_line(completed).rpartition(": ")[2]
            raise HostError(self.name, f"can't run {command[0]}: {reason}")
        return completed

    async def _run_again(self, order: "_Order", *, repeatable: bool) -> Completed:
        """Run a command once, or until the connection holds for it."""
        patience_s = self.settings.reconnect_patience
        broken_at: float | None = None
        while True:
            try:
                if self._given_up:
                    await self._end_given_up()
                return await self._run_once(order)
            except ConnectionBroken:
                broken_at = broken_at or time.monotonic()
                if not repeatable or time.monotonic() - broken_at > patience_s:
                    raise

    async def _run_once(self, order: "_Order") -> Completed:
        """Run a command under a name of its own; if it isn't awaited to its end, it is ended."""
        name = f"{RUN}={uuid.uuid4().hex}"
        try:
            completed = await self.transport.run(
                [*self.settings.prefix, "env", name, *order.words],
                stdin=order.stdin,
                timeout_s=order.timeout_s,
                max_output_bytes=order.max_output_bytes,
            )
        except ConnectionBroken:
            self._given_up.add(name)
            raise
        except asyncio.CancelledError:
            self._given_up.add(name)
            await asyncio.shield(self._try_end_given_up())
            raise
        if completed.exit_code is None:
            self._given_up.add(name)
            await self._try_end_given_up()
        return completed

    async def _try_end_given_up(self) -> None:
        """End what was given up if the host can be reached now; otherwise it is ended later."""
        try:
            async with asyncio.timeout(_END_S):
                await self._end_given_up()
        except (HostError, TimeoutError):
            return

    async def _end_given_up(self) -> None:
        """End every process of the commands that were given up."""
        async with self._ending:
            names = sorted(self._given_up)
            if names:
                command = [self.transport.python, "-I", "-S", "-c", END_RUNS]
                await self.transport.run(
                    [*self.settings.prefix, *command],
                    stdin=" ".join(names).encode(),
                    timeout_s=15.0,
                    max_output_bytes=1 << 16,
                )
            self._given_up.difference_update(names)

    async def ask(
        self, command: str, request: Mapping[str, Any], timeout_s: float = 60.0
    ) -> dict[str, Any]:
        """Ask the agent; every question may be asked twice, and is where the connection broke.

        Raises `HostError` with the agent's own words where it can't answer.
        """
        words = [self.transport.python, "-I", "-S", "-B", self._agent, command]
        order = _Order(words, json.dumps(request).encode(), timeout_s, 64 << 20)
        completed = await self._run_again(order, repeatable=True)
        if not completed.ok:
            raise HostError(self.name, f"the agent's {command} failed: {_last_line(completed)}")
        try:
            answer: dict[str, Any] = json.loads(completed.stdout)
        except ValueError as error:
            said = completed.stdout[:80].decode(errors="replace")
            fault = f"the agent's {command} was answered with {said!r}"
            way_out = "does a start-up file of the login shell print something?"
            raise HostError(self.name, f"{fault}; {way_out}") from error
        if "error" in answer:
            raise HostError(self.name, answer["error"])
        return answer

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        folder: str,
        mark: str,
        lease_s: float,
        grace_s: float,
    ) -> None:
        """Start a program detached: its log, pid and exit status lie in `folder`.

        It is ended when `renew` hasn't named the folder for `lease_s` seconds. However often the
        question is repeated over a connection that breaks, it is started once.
        """
        request = {
            "argv": [self.expand(argv[0]), *argv[1:]],
            "env": {**self.settings.env, **env},
            "folder": folder,
            "mark": mark,
            "lease_s": lease_s,
            "grace_s": grace_s,
            "order": uuid.uuid4().hex,
            "traces": f"{self._traces}/{mark.strip('/').replace('/', '_')}.json",
        }
        await self.ask("start", request)

    async def record(
        self,
        commands: Sequence[Sequence[str]],
        every_s: float,
        folder: str,
        mark: str,
        lease_s: float,
    ) -> None:
        """Start the first of some programs that works, detached, its lines stamped in the log.

        It is started again when it ends; a line that begins with a time has both clocks instead.
        """
        request = json.dumps({"commands": commands, "every_s": every_s})
        argv = [self.transport.python, "-I", "-S", "-B", self._agent, "record", request]
        await self.start(
            argv, env={}, folder=folder, mark=mark, lease_s=lease_s, grace_s=_RECORDER_GRACE_S
        )

    async def watch(
        self,
        folder: str,
        mark: str,
        offset: int,
        port: int = 0,
        wait_s: float = 0.0,
        *,
        news: bool = True,
        need: Sequence[int] = (),
    ) -> Watched:
        """Look at a detached program: at once when it has ended, or after `wait_s` at most.

        More in its log ends the wait too, unless there is no need of `news`; and so does the end
        of a process that it needs.
        """
        request = {
            "folder": folder,
            "mark": mark,
            "offset": offset,
            "limit": 4 << 20,
            "port": port,
            "wait_s": wait_s,
            "news": news,
            "need": list(need),
        }
        answer = await self.ask("watch", request)
        family = tuple((pid, name) for pid, name in answer["family"])
        return Watched(**{**answer, "log": base64.b64decode(answer["log"]), "family": family})

    async def stop(self, mark: str, grace_s: float) -> Ended:
        """End every process of ours whose marker begins with `mark`; verified gone."""
        request = {"mark": mark, "grace_s": grace_s}
        return _ended(await self.ask("stop", request, grace_s + 30))

    async def kill(self, targets: Sequence[HostProcess], grace_s: float) -> Ended:
        """End just these processes: SIGTERM, after the grace SIGKILL."""
        pairs = [(target.pid, target.start_ticks) for target in targets]
        request = {"targets": pairs, "grace_s": grace_s}
        return _ended(await self.ask("kill", request, grace_s + 30))

    async def holders(self) -> list[HostProcess]:
        """Every process that holds one of the host's device files open."""
        answer = await self.ask("holders", {"devices": self.expand(self.settings.devices)})
        return [_process(item) for item in answer["holders"]]

    async def occupants(self) -> list[HostProcess]:
        """The holders, and what was launched from our run folder even where it holds no device."""
        devices, launches = self.expand(self.settings.devices), self.launch_folder("")
        answer = await self.ask("occupants", {"devices": devices, "launches": launches})
        return [_process(item) for item in answer["processes"]]

    async def leftovers(self) -> tuple[Leftover, ...]:
        """What our dead launches have left outside their folders."""
        answer = await self.ask("leftovers", {"folder": self._traces})
        return tuple(Leftover(**item) for item in answer["leftovers"])

    async def remove_leftovers(self) -> tuple[Leftover, ...]:
        """Take it away, a build lock aside; what was."""
        answer = await self.ask("remove_leftovers", {"folder": self._traces})
        return tuple(Leftover(**item) for item in answer["leftovers"])

    async def ours(self, mark: str = "") -> list[HostProcess]:
        """Every process of ours, or those whose marker begins with `mark`."""
        answer = await self.ask("ours", {"mark": mark})
        return [_process(item) for item in answer["processes"]]

    async def read(self, path: str, offset: int = 0, limit: int = 4 << 20) -> bytes:
        """Part of a file; empty where there is none."""
        request = {"path": self.expand(path), "offset": offset, "limit": limit}
        return base64.b64decode((await self.ask("read", request))["data"])

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file whole, with its folder."""
        text = base64.b64encode(data).decode()
        await self.ask("write", {"path": path, "data": text, "executable": executable})

    async def free_port(self, avoid: Sequence[int] = (), in_a_row: int = 1) -> int:
        """The first port from the host's own on that nobody listens on, nor on those after it."""
        request = {"first": self.settings.port, "avoid": list(avoid), "in_a_row": in_a_row}
        port: int = (await self.ask("free_port", request))["port"]
        return port


@dataclass(frozen=True, slots=True)
class _Order:
    """A command as it is run inside the prefix."""

    words: Sequence[str]
    stdin: bytes
    timeout_s: float
    max_output_bytes: int


def _inside(variables: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """A command behind `env`, with its variables: so they arrive inside a container, too."""
    return [*(f"{name}={value}" for name, value in variables.items()), *command]


def _process(item: Mapping[str, Any]) -> HostProcess:
    return HostProcess(**{**item, "devices": tuple(item.get("devices", ()))})


def _ended(answer: Mapping[str, Any]) -> Ended:
    return Ended(
        tuple(_process(item) for item in answer["ended"]),
        tuple(_process(item) for item in answer["left"]),
    )


def _last_line(completed: Completed) -> str:
    """The last word of a command that failed."""
    if completed.exit_code is None:
        return "no answer in time"
    lines = completed.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {completed.exit_code}"
