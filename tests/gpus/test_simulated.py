"""Cleaning after a simulated server, whose memory the simulated nvidia-smi tells of."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.gpus.clean import IDLE_MIB, clean, gpu_facts
from tasks.gpus.plan import Policy
from tasks.gpus.sample import sampling
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold
from tests.ports import free_port

PROJECT = Path(__file__).parents[2]
READY = b"The server is fired up and ready to roll!"


@pytest.fixture
def pretended(tmp_path: Path) -> HostSettings:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text("time_scale = 0.02\nlaunch_time_scale = 0.0\n")
    command = [sys.executable, "-m", "simulator.host", "--root", tmp_path / "sim", "--json"]
    command += ["--scenario", scenario]
    made = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
    settings = HostSettings.model_validate_json(made.stdout)
    # Not the usual port: a server of another test may take that between our look and our launch.
    return settings.model_copy(update={"port": free_port()})


@pytest.fixture
async def simulated(pretended: HostSettings) -> AsyncIterator[Host]:
    async with connect("simulated", pretended) as host:
        yield host


async def serve(host: Host, model: Path, mark: str) -> None:
    """Launch a server on all eight GPUs and wait until it is ready."""
    port = await host.free_port()
    options = ["--model-path", str(model), "--tp", "8", "--port", str(port)]
    argv = [host.settings.stacks[0], *host.settings.launch, *options]
    folder = host.launch_folder(mark)
    await host.start(argv, env={}, folder=folder, mark=mark, lease_s=60, grace_s=1)
    for _ in range(200):
        watched = await host.watch(folder, mark, 0)
        if READY in watched.log:
            return
        assert watched.exit_code is None, watched.log.decode()
        await asyncio.sleep(0.1)
    pytest.fail("the simulated server did not get ready")


async def test_a_server_left_behind_is_ended_and_its_memory_waited_for(
    simulated: Host, tmp_path: Path
) -> None:
    mark = f"test{tmp_path}/1/"
    await serve(simulated, tmp_path / "sim" / "models" / "kimi", mark)
    (tmp_path / "sim" / "throttle").write_text("0x40")
    held = Hold(simulated, "token", lease_s=60)
    async with sampling(held, f"{mark}gpu/", clock=None, interval_s=0.1) as samples:
        await asyncio.sleep(1.0)
    gpus = await gpu_facts(simulated)
    served = await simulated.watch(simulated.launch_folder(mark), mark, 0)
    assert served.running, (served.exit_code, served.ended_by, served.log)
    assert gpus is not None
    assert min(gpu.memory_used_mib for gpu in gpus) > IDLE_MIB
    assert {sample.index for sample in samples} == set(range(8))
    assert samples[0].power_w is not None
    assert samples[0].throttle == ("hw_thermal_slowdown",)

    cleaned = await clean(simulated, Policy.OWN, grace_s=5)
    assert len(cleaned.ended) >= 8
    assert {kill.reason for kill in cleaned.ended} == {f"left by our run {mark}"}
    assert max(gpu.memory_used_mib for gpu in cleaned.gpus) <= IDLE_MIB
    assert (await clean(simulated, Policy.OWN)).ended == ()
