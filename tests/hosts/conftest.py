"""A host that is this machine, with its run folder and devices in a temporary folder."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tests.hosts.sshd import Home, Sshd, Wire


@pytest.fixture
def settings(tmp_path: Path) -> HostSettings:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    devices, run_folder = tmp_path / "dev" / "nvidia*", tmp_path / "run"
    return HostSettings(run_folder=str(run_folder), devices=str(devices))


@pytest.fixture
async def host(settings: HostSettings) -> AsyncIterator[Host]:
    async with connect("local", settings) as connected:
        yield connected


@dataclass(frozen=True)
class Box:
    """A host over SSH: this machine behind a real sshd, which is reached by a wire."""

    home: Home
    sshd: Sshd
    wire: Wire
    settings: HostSettings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Home(tmp_path / "home")


@pytest.fixture
def box(tmp_path: Path, home: Home, settings: HostSettings) -> Iterator[Box]:
    """One key, one alias: the usual case."""
    sshd = Sshd(tmp_path / "sshd")
    sshd.let_in(home.key)
    sshd.start()
    wire = Wire(sshd.port)
    home.configure("box", wire.port)
    home.trust(sshd, wire.port)
    remote = settings.model_copy(update={"address": "box", "reconnect_patience": 20.0})
    try:
        yield Box(home, sshd, wire, remote)
    finally:
        wire.close()
        sshd.kill()


@pytest.fixture
async def far(box: Box) -> AsyncIterator[Host]:
    async with connect("box", box.settings) as connected:
        yield connected
