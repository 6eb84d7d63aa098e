"""What else differs between two sweeps: configuration, environment, software, driver."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from settings.sweep import Sweep
from tasks.domain.facts import GpuFacts
from tasks.results.records import StoredSweep, SweepRecord

_LEVELS = ("concurrency", "request_rate")
_CLOCKS = {
    "gpu_sm_clock_mhz": "SM clock under load",
    "gpu_memory_clock_mhz": "memory clock under load",
}
LEAST_CLOCK_CHANGE = 0.01
"""Boost clocks differ by a few MHz from run to run."""


def workload_differences(mine: Sweep, reference: Sweep) -> Iterator[str]:
    """Name each setting in which workloads of one name differ; other levels don't matter."""
    others = {workload.name: workload for workload in reference.workloads}
    for workload in mine.workloads:
        if workload.name not in others:
            continue
        here, there = workload.model_dump(), others[workload.name].model_dump()
        for level in _LEVELS:
            del here[level], there[level]
        yield from differences(here, there, f"workload {workload.name}: ")


def what_changed(mine: SweepRecord, reference: SweepRecord) -> Iterator[str]:
    """Name what differs besides the results, as `name: reference → mine`."""
    yield from differences(_facts(mine), _facts(reference))


def clock_changes(mine: StoredSweep, reference: StoredSweep) -> Iterator[str]:
    """Name the GPU clocks under load that differ by 1 % or more, as means over all runs."""
    for metric, name in _CLOCKS.items():
        now, was = (_mean_metric(stored, metric) for stored in (mine, reference))
        if now and was and abs(now / was - 1) >= LEAST_CLOCK_CHANGE:
            yield f"{name}: {was:,.0f} → {now:,.0f} MHz"


def _mean_metric(stored: StoredSweep, metric: str) -> float | None:
    levels = [level for result in stored.trials for level in result.levels]
    values = [level.metrics[metric] for level in levels if metric in level.metrics]
    return sum(values) / len(values) if values else None


def differences(
    mine: Mapping[str, object], reference: Mapping[str, object], prefix: str = ""
) -> Iterator[str]:
    """Compare two flat mappings."""
    for name in dict.fromkeys((*reference, *mine)):
        was, now = reference.get(name, "absent"), mine.get(name, "absent")
        if was != now:
            yield f"{prefix}{name}: {was} → {now}"


def _facts(record: SweepRecord) -> dict[str, object]:
    server = record.sweep.server
    facts: dict[str, object] = {"host": record.sweep.host, "model_path": server.model_path}
    facts |= {f"args.{name}": value for name, value in server.args.items()}
    facts |= {f"env.{name}": value for name, value in server.env.items()}
    facts |= record.versions
    for report in record.stacks:
        found = report.facts
        facts |= {f"{report.stack} {package.name}": package.version for package in found.packages}
        facts |= {f"{report.stack} torch.{name}": value for name, value in found.torch.items()}
        facts |= _gpus(found.gpus)
    return facts


def _gpus(gpus: Sequence[GpuFacts]) -> dict[str, object]:
    """Tell GPUs that are alike once: eight lines for one driver would bury the rest."""
    if not gpus:
        return {}
    names = Counter(gpu.name for gpu in gpus)
    drivers = sorted({gpu.driver_version for gpu in gpus})
    return {
        "GPUs": ", ".join(f"{count} x {name}" for name, count in names.items()),
        "driver": ", ".join(drivers),
    }
