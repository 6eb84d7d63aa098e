"""The sampler watches while a block runs, and gets in nobody's way."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.gpus.sample import sampling
from tasks.hosts.connect import connect
from tasks.hosts.host import Host

LINES = """\
0, 341.20, 2430, 12481, 63, 91822, 97, 0x0000000000000000
1, 34.87, 180, 405, 31, 4, 0, 0x0000000000000001
"""


@pytest.fixture
def samples_file(tmp_path: Path, settings: HostSettings) -> Path:
    (tmp_path / "gpus.csv").write_text(LINES)
    return tmp_path / "gpus.csv"


def others() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_a_sample_per_gpu_and_interval(shared: Host, samples_file: Path) -> None:
    async with sampling(shared, interval_s=0.2) as samples:
        await asyncio.sleep(0.75)
    assert {sample.index for sample in samples} == {0, 1}
    moments = [sample.monotonic_ns for sample in samples if sample.index == 0]
    # A busy machine may skip one, never add one.
    assert 2 <= len(moments) <= 4
    assert all(b - a > 0.1e9 for a, b in pairwise(moments))
    assert others() == []


async def test_a_host_without_nvidia_smi_gives_no_samples(settings: HostSettings) -> None:
    blind = settings.model_copy(update={"nvidia_smi": ("no-such-smi",)})
    async with connect("blind", blind) as host, sampling(host, 0.05) as samples:
        await asyncio.sleep(0.4)
        assert others() == [], "it gave up"
    assert samples == []


async def test_cancellation_passes_through(shared: Host, samples_file: Path) -> None:
    inside = asyncio.Event()

    async def measure() -> None:
        async with sampling(shared, interval_s=0.1):
            inside.set()
            await asyncio.sleep(1000)

    task = asyncio.create_task(measure())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert others() == []


async def test_what_the_block_raises_comes_out(shared: Host, samples_file: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with sampling(shared, interval_s=0.1):
            raise ZeroDivisionError
    assert others() == []
