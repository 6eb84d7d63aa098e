"""A simulated host that is held, and launches on it that are ended whatever happens."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.configuration import ServerConfiguration
from tasks.domain.progress import Progress
from tasks.failures.fatal import fatal_line
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold, hold
from tasks.server.command import command_line
from tasks.server.launch import Launch, Node, Patience, end_marked, log_at, start
from tasks.server.readiness import NotReady, Ready, await_ready
from tasks.server.site import Site
from tests.ports import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = "time_scale = 0.02\nlaunch_time_scale = 0.0\n"
WHAT = Progress("launch")


def fault(kind: str, **details: object) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in details.items()]
    return "\n".join(["[[fault]]", f'kind = "{kind}"', *lines, ""])


def create_host(folder: Path, scenario: str) -> HostSettings:
    (folder / "scenario.toml").write_text(scenario)
    command = [sys.executable, "-m", "simulator.host", "--root", str(folder / "host"), "--json"]
    made = subprocess.run(
        [*command, "--scenario", str(folder / "scenario.toml")],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    return HostSettings.model_validate({**json.loads(made.stdout), "port": free_port()})


@dataclass
class Bed:
    """A held host and what was launched there."""

    host: Host
    hold: Hold
    folder: Path
    marks: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return str(self.folder / "host" / "models" / "kimi")

    @property
    def site(self) -> Site:
        return Site(self.hold, (), Patience(30, 15, 2))

    def mark(self) -> str:
        self.marks.append(f"test-{uuid.uuid4().hex[:8]}/")
        return self.marks[-1]

    def scenario(self, text: str) -> None:
        (self.folder / "scenario.toml").write_text(QUICK + text)

    async def launch(
        self, scenario: str = "", port: int | None = None, program: str = "", **args: int
    ) -> Launch:
        """Start a server (or a Python program in its place) without waiting for anything."""
        self.scenario(scenario)
        configuration = ServerConfiguration(self.model, {"tp": 8, **args})
        launch = ("-c", program) if program else self.host.settings.launch
        interpreter = sys.executable if program else self.host.settings.stacks[0]
        port = port or await self.host.free_port()
        command = command_line(configuration, interpreter, launch, port=port)
        return await start([Node(self.hold, self.mark(), port, command)], Patience(60, 60, 2))

    async def await_log(self, launch: Launch, text: bytes) -> None:
        for _ in range(200):
            if text in await log_at(self.host, launch.folder):
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"the log never said {text!r}")

    async def ready(
        self, launch: Launch, ready_s: float = 20, stall_s: float = 10
    ) -> Ready | NotReady:
        patience = Patience(ready_s, stall_s, 2, certain_s=0.5)
        return await await_ready(launch, patience, fatal_line, WHAT)


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with (
        connect("simulated", create_host(tmp_path, QUICK)) as host,
        hold(host, "test", "token", lease_s=60, wait_s=0) as held,
    ):
        bed = Bed(host, held, tmp_path)
        yield bed
        for mark in bed.marks:
            await end_marked(held, mark, 0.1)
        assert await host.holders() == []
