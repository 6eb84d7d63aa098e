"""The sampler watches while a block runs, and gets in nobody's way."""

import asyncio
import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.nvidia_smi import GpuSample
from tasks.gpus.sample import clock_offset_ns, sampling
from tasks.hosts.agent.recorder import follow, lateness_s, record
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold
from tests.hosts.processes import wait_for

MARK = f"test-sampling-{os.getpid()}/1/gpu/"
SMI = """\
import sys, time
if "{refused}" in " ".join(sys.argv):
    sys.exit('Field "{refused}" is not a valid field to query.')
asks = open("{folder}/asked", "a")
for _ in range({times}):
    now = time.strftime("%Y/%m/%d %H:%M:%S") + ".000"
    print(f"{{now}}, 0, 341.20, 2430, 12481, 63, 91822, 97, 0x0000000000000000")
    print(f"{{now}}, 1, 34.87, 180, 405, 31, 4, 0, 0x0000000000000001", flush=True)
    asks.write("x")
    asks.flush()
    time.sleep(0.02)
"""
Smi = Callable[..., HostSettings]


@pytest.fixture
def smi(tmp_path: Path, settings: HostSettings) -> Smi:
    """Settings of a host with an nvidia-smi that ends after so many samples."""

    def made(times: int = 1_000_000, refused: str = "nothing") -> HostSettings:
        program = tmp_path / "smi.py"
        program.write_text(SMI.format(times=times, refused=refused, folder=tmp_path))
        return settings.model_copy(update={"nvidia_smi": (sys.executable, str(program))})

    return made


async def sampled(host: Host, enough: Path, asks: int) -> list[GpuSample]:
    """Sample until nvidia-smi has been asked so often."""
    async with sampling(Hold(host, "token", 60), MARK, clock=None, interval_s=0.05) as samples:
        await asyncio.to_thread(
            wait_for,
            lambda: enough.exists() and enough.stat().st_size >= asks,
            "the sampling",
            timeout_s=30.0,
        )
    assert await host.ours(MARK) == []
    return samples


async def test_one_process_tells_every_sample_with_its_moment(smi: Smi, tmp_path: Path) -> None:
    before_ns, before = time.monotonic_ns(), time.time()
    async with connect("shared", smi()) as host:
        samples = await sampled(host, tmp_path / "asked", 5)
        assert not (tmp_path / "run" / "launches" / MARK.rstrip("/")).exists()
    assert [sample.index for sample in samples[:2]] == [0, 1]
    assert len(samples) >= 10
    # The time that the program tells is whole seconds here.
    assert all(before_ns - 1e9 <= s.monotonic_ns <= time.monotonic_ns() for s in samples)
    assert all(before - 1 <= s.at <= time.time() for s in samples)


async def test_an_nvidia_smi_that_dies_is_started_again(smi: Smi, tmp_path: Path) -> None:
    async with connect("shared", smi(times=2)) as host:
        assert len(await sampled(host, tmp_path / "asked", 5)) >= 10


async def test_an_older_driver_is_asked_by_the_older_name(smi: Smi, tmp_path: Path) -> None:
    async with connect("shared", smi(refused="clocks_event_reasons")) as host:
        assert len(await sampled(host, tmp_path / "asked", 2)) >= 4


@pytest.mark.parametrize("command", ["no-such-smi", "false"])
async def test_a_host_whose_nvidia_smi_does_not_work_gives_no_samples(
    settings: HostSettings, command: str
) -> None:
    blind = settings.model_copy(update={"nvidia_smi": (command,)})
    async with connect("blind", blind) as host:
        held, exited = Hold(host, "token", 60), Path(host.launch_folder(MARK)) / "exit.json"
        async with sampling(held, MARK, clock=held.host, interval_s=0.01) as samples:
            await asyncio.to_thread(wait_for, exited.exists, "giving up")
    assert samples == []


async def test_cancellation_passes_through_and_ends_the_recorder(smi: Smi, tmp_path: Path) -> None:
    async with connect("shared", smi()) as host:
        task = asyncio.create_task(sampled(host, tmp_path / "asked", 1_000_000))
        await asyncio.to_thread(wait_for, (tmp_path / "asked").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await host.ours(MARK) == []


async def test_what_the_block_raises_comes_out(smi: Smi) -> None:
    async with connect("shared", smi()) as host:
        with pytest.raises(ZeroDivisionError):
            async with sampling(Hold(host, "token", 60), MARK, clock=None):
                raise ZeroDivisionError
        assert await host.ours(MARK) == []


async def test_this_machine_has_one_clock(shared: Host) -> None:
    assert await clock_offset_ns(shared, None) == 0


def test_a_line_that_was_held_back_is_dated_by_its_own_time() -> None:
    now = time.mktime(time.strptime("2026/01/10 09:11:12", "%Y/%m/%d %H:%M:%S"))
    assert lateness_s("2026/01/10 09:11:02.500", now) == pytest.approx(9.5)
    assert lateness_s("2026/01/10 08:11:02.500", now) == 0.0, "an hour is no lateness"
    assert lateness_s("2026/01/10 09:11:13.000", now) == 0.0
    assert lateness_s("GPU is lost", now) is None
    assert lateness_s("", now) is None


def test_a_program_that_never_works_is_given_up() -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        record({"commands": [["no-such-program"], ["echo", "no time"]], "every_s": 0.0})
    lines = said.getvalue().splitlines()
    assert lines.count("no-such-program: No such file or directory") == 3
    assert lines.count("no time") == 2
    with redirect_stdout(said):
        assert not follow(["true"])
