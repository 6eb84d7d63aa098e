"""What the GPUs did during a run: the energy they took, and whether their clocks were held down."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tasks.domain.measurement import LevelResult, RunVerdict, Validity
from tasks.domain.nvidia_smi import GpuSample
from tasks.gpus.clean import IDLE_MIB

POWER_CAP = "sw_power_cap"
"""Held down to the power limit that is set: how a GPU is meant to run under a full load.

It is told as a figure, but no run is suspect for it: the configuration gets what the host gives.
"""

MOST_THROTTLED_SHARE = 0.05
"""Share of a GPU's samples that may say it was too hot, or short of power."""

MOST_GAP_NS = 5_000_000_000
"""Samples further apart, or further from a run's ends, don't tell what happened in between."""

Points = Sequence[tuple[int, float]]
Window = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU's samples in the order of time, and those of them that are the run's."""

    index: int
    samples: Sequence[GpuSample]
    inside: Sequence[GpuSample]

    @property
    def in_use(self) -> bool:
        """Whether the server was on it; a GPU that doesn't tell its memory may be."""
        taken = [s.memory_used_mib for s in self.inside if s.memory_used_mib is not None]
        return bool(self.inside) and (not taken or max(taken) > IDLE_MIB)

    def share(self, reasons: Iterable[str]) -> float:
        """Share of the run's samples with one of these reasons."""
        wanted = set(reasons)
        return sum(bool(wanted & set(s.throttle)) for s in self.inside) / len(self.inside)


def with_gpus(level: LevelResult, samples: Sequence[GpuSample]) -> LevelResult:
    """Add to a run what the GPUs in use did meanwhile; a throttled one makes it suspect.

    Where the samples don't cover the run nothing is added: no energy is better than a wrong one.
    """
    window = window_of(level)
    gpus = [] if window is None else [gpu for gpu in _by_gpu(samples, window) if gpu.in_use]
    if window is None or not gpus:
        return level
    metrics = {**level.metrics, **_energy(gpus, window, level.metrics)}
    metrics |= _clocks(gpus)
    metrics["gpu_power_capped_share"] = sum(gpu.share([POWER_CAP]) for gpu in gpus) / len(gpus)
    faults = [fault for gpu in gpus if (fault := _throttled(gpu))]
    return replace(level, metrics=metrics, verdict=_doubted(level.verdict, faults))


def window_of(level: LevelResult) -> Window | None:
    """The run as `duration` has it: first intended send to last end, warm-up left out, in ns."""
    measured = [record for record in level.records if not record.warmup]
    if not measured:
        return None
    return min(r.intended_ns for r in measured), max(r.end_ns for r in measured)


def energy_j(points: Points, window: Window) -> float | None:
    """Integrate power (W) over a window of nanoseconds: straight lines from sample to sample.

    None where the samples leave a gap in the window that is longer than `MOST_GAP_NS`.
    """
    start, end = window
    before = [point for point in points if point[0] <= start][-1:]
    after = [point for point in points if point[0] >= end][:1]
    inside = [point for point in points if start < point[0] < end]
    known = [*before, *inside, *after]
    edges = [known[0][0] - start, end - known[-1][0]] if known else [MOST_GAP_NS + 1]
    gaps = [second[0] - first[0] for first, second in pairwise(known)]
    if max([*edges, *gaps]) > MOST_GAP_NS:
        return None
    bounds = [(start, _at(known, start)), *inside, (end, _at(known, end))]
    pairs = pairwise(bounds)
    return sum((b[0] - a[0]) / 1e9 * (a[1] + b[1]) / 2 for a, b in pairs)


def _at(points: Points, moment: int) -> float:
    """The power at a moment, between two samples or as the nearest one says."""
    for (first, low), (second, high) in pairwise(points):
        if first <= moment <= second and second > first:
            return low + (high - low) * (moment - first) / (second - first)
    return points[0][1] if moment < points[0][0] else points[-1][1]


def _by_gpu(samples: Sequence[GpuSample], window: Window) -> Iterable[_Gpu]:
    start, end = window
    for index in sorted({sample.index for sample in samples}):
        own = sorted((s for s in samples if s.index == index), key=lambda s: s.monotonic_ns)
        inside = [s for s in own if start <= s.monotonic_ns <= end]
        yield _Gpu(index, own, inside or _nearest(own, window))


def _nearest(samples: Sequence[GpuSample], window: Window) -> Sequence[GpuSample]:
    """The samples on both sides of a run that is shorter than the interval."""
    start, end = window
    return [s for s in samples if start - MOST_GAP_NS <= s.monotonic_ns <= end + MOST_GAP_NS]


def _energy(
    gpus: Sequence[_Gpu], window: Window, metrics: Mapping[str, float]
) -> Mapping[str, float]:
    """Energy of all GPUs in use, and the tokens that came of it."""
    taken = [
        energy_j(
            [(s.monotonic_ns, s.power_w) for s in gpu.samples if s.power_w is not None], window
        )
        for gpu in gpus
    ]
    known = [joules for joules in taken if joules is not None]
    total_j, duration_s = sum(known), (window[1] - window[0]) / 1e9
    if len(known) < len(gpus) or total_j <= 0:
        return {}
    return {
        "gpu_energy_j": total_j,
        "gpu_power_w": total_j / duration_s,
        "output_tokens_per_joule": metrics.get("total_output_tokens", 0.0) / total_j,
    }


def _clocks(gpus: Sequence[_Gpu]) -> Mapping[str, float]:
    """Mean clocks: over each GPU's samples, then over the GPUs that tell any."""
    told = {
        "gpu_sm_clock_mhz": [[s.sm_clock_mhz for s in gpu.inside] for gpu in gpus],
        "gpu_memory_clock_mhz": [[s.memory_clock_mhz for s in gpu.inside] for gpu in gpus],
    }
    found = {}
    for name, each in told.items():
        known = [[clock for clock in clocks if clock is not None] for clocks in each]
        means = [sum(clocks) / len(clocks) for clocks in known if clocks]
        if means:
            found[name] = sum(means) / len(means)
    return found


def _throttled(gpu: _Gpu) -> str | None:
    reasons = {reason for sample in gpu.inside for reason in sample.throttle} - {POWER_CAP}
    share = gpu.share(reasons)
    if share <= MOST_THROTTLED_SHARE:
        return None
    return f"GPU {gpu.index} throttled in {share:.0%} of the time: {', '.join(sorted(reasons))}"


def _doubted(verdict: RunVerdict, faults: Sequence[str]) -> RunVerdict:
    """A verdict with more against the run."""
    if not faults:
        return verdict
    validity = Validity.SUSPECT if verdict.validity is Validity.VALID else verdict.validity
    return RunVerdict(validity, (*verdict.reasons, *faults))
