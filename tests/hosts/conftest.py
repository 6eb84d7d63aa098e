"""A host that is this machine, with its run folder and devices in a temporary folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.hosts.connect import connect
from tasks.hosts.host import Host


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
