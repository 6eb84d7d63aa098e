"""Watch power, clocks, temperature and memory of the GPUs while a trial runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tasks.domain.nvidia_smi import SAMPLE_QUERY, GpuSample, parse_samples
from tasks.gpus.clean import ask_nvidia_smi
from tasks.hosts.host import Host

_GIVE_UP_AFTER = 3
"""Failures in a row after which a host is taken to have no nvidia-smi that answers."""


@asynccontextmanager
async def sampling(host: Host, interval_s: float = 2.0) -> AsyncIterator[list[GpuSample]]:
    """Fill a list with a sample per GPU every `interval_s` while the block runs.

    A measurement is never disturbed by its watcher: where nvidia-smi fails the list stays
    shorter, or empty.
    """
    samples: list[GpuSample] = []
    watcher = asyncio.create_task(_watch(host, interval_s, samples))
    try:
        yield samples
    finally:
        watcher.cancel()
        # Not a suppressed await: that would swallow our own cancellation too.
        await asyncio.gather(watcher, return_exceptions=True)


async def _watch(host: Host, interval_s: float, samples: list[GpuSample]) -> None:
    """Sample at whole multiples of the interval from the start on; a slow answer skips some."""
    start = time.monotonic()
    failures = 0
    while failures < _GIVE_UP_AFTER:
        # What nvidia-smi reads is true somewhere between its start and its end: take the middle.
        asked_ns, at = time.monotonic_ns(), time.time()
        text = await ask_nvidia_smi(host, SAMPLE_QUERY)
        half_ns = (time.monotonic_ns() - asked_ns) // 2
        failures = failures + 1 if text is None else 0
        samples.extend(parse_samples(text or "", at + half_ns / 1e9, asked_ns + half_ns))
        since_s = time.monotonic() - start
        await asyncio.sleep(interval_s - since_s % interval_s)
