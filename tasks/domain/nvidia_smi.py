"""What nvidia-smi is asked, and how its answers read.

Each query is a command's arguments and a parser of what the command prints; neither touches a
host. A field that a GPU or a driver doesn't have reads `[N/A]` or `[Not Supported]`.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.domain.facts import GpuFacts

_FORMAT = "--format=csv,noheader,nounits"
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "memory.used", "driver_version")
_SAMPLE_FIELDS = (
    "index",
    "power.draw",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "memory.used",
    "utilization.gpu",
)
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Why the clocks are held down, by its name since driver 535, and by the one before."""

GPU_QUERY = (f"--query-gpu={','.join(_GPU_FIELDS)},compute_cap", _FORMAT)
APPS_QUERY = ("--query-compute-apps=pid,process_name,used_memory", _FORMAT)

_STAMPED = re.compile(r"^(\d+\.\d+) (\d+) (.+)$", re.MULTILINE)

_THROTTLES = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""The bits of NVML's clocks event reasons that slow a busy GPU down.

Left out are idle (1), application clocks (2), sync boost (16) and display clocks (256): a GPU
that does nothing, or that was set so, isn't throttled.
"""


def sample_queries(interval_s: float) -> list[list[str]]:
    """Ask for a sample of every GPU again and again, by what newer and older drivers understand.

    Each line begins with the time of the query.
    """
    return [
        [
            f"--query-gpu={','.join(('timestamp', *_SAMPLE_FIELDS, reasons))}",
            _FORMAT,
            f"--loop-ms={interval_s * 1000:.0f}",
        ]
        for reasons in _REASONS
    ]


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment; None where the GPU doesn't tell.

    `at` is UTC seconds since the epoch, `monotonic_ns` the same moment on the clock that the
    requests' times are on. `throttle` names why the clocks are held down.
    """

    at: float
    monotonic_ns: int
    index: int
    power_w: float | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    memory_used_mib: float | None
    utilization_percent: float | None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuApp:
    """A process that has memory on a GPU, as the driver tells it; it may be out of our sight."""

    pid: int
    name: str
    memory_mib: float | None


def parse_gpus(text: str) -> tuple[GpuFacts, ...]:
    """Read the answer to `GPU_QUERY`; lines that aren't a GPU are passed over."""
    return tuple(
        GpuFacts(
            index=int(row[0]),
            name=row[1],
            uuid=row[2],
            memory_total_mib=int(_number(row[3]) or 0),
            memory_used_mib=int(_number(row[4]) or 0),
            driver_version=row[5],
            compute_capability=row[6] if _number(row[6]) is not None else "",
        )
        for row in _rows(text, len(_GPU_FIELDS) + 1)
    )


def parse_samples(text: str, offset_ns: int = 0) -> tuple[GpuSample, ...]:
    """Read what was recorded of `sample_queries`: UTC, monotonic time and the rest of the line.

    `offset_ns` is added to the monotonic times; lines that are no sample are passed over.
    """
    return tuple(
        _sample(row, float(at), int(monotonic_ns) + offset_ns)
        for at, monotonic_ns, rest in _STAMPED.findall(text)
        for row in _rows(rest, len(_SAMPLE_FIELDS) + 1)
    )


def _sample(row: Sequence[str], at: float, monotonic_ns: int) -> GpuSample:
    power, sm_clock, memory_clock, temperature, memory, utilization = map(_number, row[1:-1])
    return GpuSample(
        at=at,
        monotonic_ns=monotonic_ns,
        index=int(row[0]),
        power_w=power,
        sm_clock_mhz=sm_clock,
        memory_clock_mhz=memory_clock,
        temperature_c=temperature,
        memory_used_mib=memory,
        utilization_percent=utilization,
        throttle=throttles(row[-1]),
    )


def parse_apps(text: str) -> tuple[GpuApp, ...]:
    """Read the answer to `APPS_QUERY`."""
    return tuple(GpuApp(int(row[0]), row[1], _number(row[2])) for row in _rows(text, 3))


def throttles(bits: str) -> tuple[str, ...]:
    """Name the reasons in a bit mask such as `0x0000000000000024`; none where it isn't one."""
    try:
        mask = int(bits, 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in _THROTTLES.items() if mask & bit)


def _rows(text: str, width: int) -> Iterator[Sequence[str]]:
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) == width and row[0].strip().isdigit():
            yield [field.strip() for field in row]


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None
