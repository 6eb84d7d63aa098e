"""Watch power, clocks, temperature and memory of the GPUs while a trial runs.

One nvidia-smi runs on the host for the whole trial and writes to a file there: a connection that
breaks loses no sample, and no process is started while the server is measured.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from tasks.domain.errors import HostError
from tasks.domain.nvidia_smi import GpuSample, parse_samples, sample_queries
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold
from tasks.hosts.parts import whole

INTERVAL_S = 1.0
_GRACE_S = 1.0


@asynccontextmanager
async def sampling(
    hold: Hold, mark: str, *, clock: Host | None, interval_s: float = INTERVAL_S
) -> AsyncIterator[list[GpuSample]]:
    """Record while the block runs; the list is filled when it has ended.

    `mark` is the marker of the recorder's processes. The samples' monotonic times are on the clock
    of the host `clock`, None for this machine's: whichever the requests' times are on.
    A measurement is never disturbed by its watcher: where nvidia-smi fails, or the host can't be
    reached at the end, the list stays shorter, or empty.
    """
    samples: list[GpuSample] = []
    folder = hold.host.launch_folder(mark)
    offset_ns = 0
    try:
        with contextlib.suppress(HostError):
            offset_ns = await clock_offset_ns(hold.host, clock)
            await _begin(hold, mark, folder, interval_s)
        yield samples
    finally:
        with contextlib.suppress(HostError):
            await asyncio.shield(_end(hold, mark, folder, samples, offset_ns))


async def _begin(hold: Hold, mark: str, folder: str, interval_s: float) -> None:
    program, *rest = hold.host.settings.nvidia_smi
    commands = [[hold.host.expand(program), *rest, *query] for query in sample_queries(interval_s)]
    hold.folders.add(folder)
    await hold.host.record(commands, interval_s, folder, mark, hold.lease_s)


async def _end(
    hold: Hold, mark: str, folder: str, samples: list[GpuSample], offset_ns: int
) -> None:
    """End the recorder, take its samples in, and its files away."""
    host = hold.host
    hold.folders.discard(folder)
    await host.stop(mark, _GRACE_S)
    text = await whole(host, f"{folder}/server.log")
    samples.extend(parse_samples(text.decode(errors="replace"), offset_ns))
    await host.ask("remove", {"folder": folder, "within": host.launch_folder("")})


def numbered_through(nodes: Sequence[Sequence[GpuSample]]) -> list[GpuSample]:
    """The samples of a server's nodes, the GPUs of each numbered on from those before it."""
    first, samples = 0, list[GpuSample]()
    for node in nodes:
        samples += [replace(sample, index=first + sample.index) for sample in node]
        first += len({sample.index for sample in node})
    return samples


async def clock_offset_ns(host: Host, clock: Host | None) -> int:
    """What to add to the host's CLOCK_MONOTONIC to get another host's, or ours."""
    if host is clock:
        return 0
    return await _ahead_ns(host) - (await _ahead_ns(clock) if clock else 0)


async def _ahead_ns(host: Host) -> int:
    """What to add to the host's CLOCK_MONOTONIC to get ours; 0 on this machine.

    Of three questions the one answered fastest tells best: it was asked and answered within twice
    the error that this can have.
    """
    if host.settings.address is None:
        return 0
    asked = [await _ask_clock(host) for _ in range(3)]
    return min(asked)[1]


async def _ask_clock(host: Host) -> tuple[int, int]:
    """How long the answer took, and the offset if it was given halfway."""
    before = time.monotonic_ns()
    there = int((await host.ask("clock", {}))["monotonic_ns"])
    after = time.monotonic_ns()
    return after - before, (before + after) // 2 - there
