"""A host that is this machine, and an environment to break."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tests.stack.pretend import Environment, make_environment


@pytest.fixture
def broken(tmp_path: Path) -> Environment:
    return make_environment(tmp_path / "venv")


@pytest.fixture
async def host(tmp_path: Path, broken: Environment) -> AsyncIterator[Host]:
    settings = HostSettings(
        run_folder=str(tmp_path / "run"),
        stacks=(str(broken.python),),
        devices=str(tmp_path / "nvidia*"),
        nvidia_smi=("no-such-smi",),
        # Python made for a test must not meet what this run of the tests was given.
        env={"PYTHONPATH": "", "LD_LIBRARY_PATH": "", "CUDA_HOME": ""},
    )
    async with connect("here", settings) as connected:
        yield connected
