"""The look-alike of `nvidia-smi`: CSV queries about the pretend GPUs and who computes on them.

    nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits
    nvidia-smi --query-compute-apps=pid,used_memory,gpu_uuid --format=csv,noheader
    nvidia-smi -L

Memory is derived from the processes that hold the device files open at this moment.
"""

import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.devices import Holder, gpu_files, holders

NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
TOTAL_MIB, IDLE_MIB = 97_887, 4
DRIVER = "580.95.05"
UNKNOWN_FIELD_EXIT = 2
NO_DEVICES_EXIT = 6


@dataclass(frozen=True, slots=True)
class Gpu:
    """One pretend GPU at this moment."""

    index: int
    holders: tuple[Holder, ...]

    @property
    def used_mib(self) -> int:
        return min(TOTAL_MIB, IDLE_MIB + sum(holder.used_mib for holder in self.holders))

    @property
    def busy(self) -> bool:
        return any(holder.name.startswith("sglang::") for holder in self.holders)

    @property
    def uuid(self) -> str:
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'simulated-gpu-{self.index}')}"


Field = tuple[str, Callable[[Gpu], object]]  # unit, value
GPU_FIELDS: dict[str, Field] = {
    "index": ("", lambda gpu: gpu.index),
    "count": ("", lambda gpu: 8),
    "name": ("", lambda gpu: NAME),
    "gpu_name": ("", lambda gpu: NAME),
    "uuid": ("", lambda gpu: gpu.uuid),
    "gpu_uuid": ("", lambda gpu: gpu.uuid),
    "pci.bus_id": ("", lambda gpu: f"00000000:{gpu.index * 16 + 1:02X}:00.0"),
    "driver_version": ("", lambda gpu: DRIVER),
    "compute_cap": ("", lambda gpu: "12.0"),
    "vbios_version": ("", lambda gpu: "98.02.6A.00.03"),
    "timestamp": ("", lambda gpu: _now()),
    "memory.total": ("MiB", lambda gpu: TOTAL_MIB),
    "memory.used": ("MiB", lambda gpu: gpu.used_mib),
    "memory.free": ("MiB", lambda gpu: TOTAL_MIB - gpu.used_mib),
    "memory.reserved": ("MiB", lambda gpu: 636),
    "utilization.gpu": ("%", lambda gpu: 97 if gpu.busy else 0),
    "utilization.memory": ("%", lambda gpu: 61 if gpu.busy else 0),
    "power.draw": ("W", lambda gpu: "341.20" if gpu.busy else "34.87"),
    "power.limit": ("W", lambda gpu: "600.00"),
    "enforced.power.limit": ("W", lambda gpu: "600.00"),
    "temperature.gpu": ("", lambda gpu: 63 if gpu.busy else 31),
    "clocks.sm": ("MHz", lambda gpu: 2430 if gpu.busy else 180),
    "clocks.current.sm": ("MHz", lambda gpu: 2430 if gpu.busy else 180),
    "clocks.mem": ("MHz", lambda gpu: 12_481 if gpu.busy else 405),
    "clocks.current.memory": ("MHz", lambda gpu: 12_481 if gpu.busy else 405),
    "clocks.max.sm": ("MHz", lambda gpu: 2430),
    "clocks.max.memory": ("MHz", lambda gpu: 12_481),
    "clocks_throttle_reasons.active": ("", lambda gpu: _reasons(gpu)),
    "clocks_event_reasons.active": ("", lambda gpu: _reasons(gpu)),
    "clocks_throttle_reasons.hw_slowdown": ("", lambda gpu: "Not Active"),
    "clocks_throttle_reasons.sw_power_cap": ("", lambda gpu: "Not Active"),
    "clocks_throttle_reasons.sw_thermal_slowdown": ("", lambda gpu: "Not Active"),
    "clocks_throttle_reasons.hw_thermal_slowdown": ("", lambda gpu: "Not Active"),
    "pcie.link.gen.current": ("", lambda gpu: 5 if gpu.busy else 1),
    "pcie.link.gen.max": ("", lambda gpu: 5),
    "pcie.link.width.current": ("", lambda gpu: 16),
    "pcie.link.width.max": ("", lambda gpu: 16),
    "ecc.mode.current": ("", lambda gpu: "Enabled"),
    "ecc.errors.uncorrected.volatile.total": ("", lambda gpu: 0),
    "persistence_mode": ("", lambda gpu: "Enabled"),
    "compute_mode": ("", lambda gpu: "Default"),
    "mig.mode.current": ("", lambda gpu: "Disabled"),
    "pstate": ("", lambda gpu: "P0" if gpu.busy else "P8"),
    "fan.speed": ("%", lambda gpu: "[N/A]"),
}

AppField = tuple[str, Callable[[Gpu, Holder], object]]
APP_FIELDS: dict[str, AppField] = {
    "pid": ("", lambda gpu, holder: holder.pid),
    "process_name": ("", lambda gpu, holder: holder.name),
    "name": ("", lambda gpu, holder: holder.name),
    "used_memory": ("MiB", lambda gpu, holder: holder.used_mib),
    "used_gpu_memory": ("MiB", lambda gpu, holder: holder.used_mib),
    "gpu_uuid": ("", lambda gpu, holder: gpu.uuid),
    "gpu_name": ("", lambda gpu, holder: NAME),
    "gpu_bus_id": ("", lambda gpu, holder: f"00000000:{gpu.index * 16 + 1:02X}:00.0"),
}


def _now() -> str:
    """Return the time as nvidia-smi writes it: local, to the millisecond."""
    now_ms = time.time_ns() // 1_000_000
    local = time.localtime(now_ms // 1000)
    return f"{time.strftime('%Y/%m/%d %H:%M:%S', local)}.{now_ms % 1000:03}"


class Refused(Exception):
    """nvidia-smi's words about a query that it doesn't take, with its exit status."""

    def __init__(self, message: str, status: int = UNKNOWN_FIELD_EXIT) -> None:
        super().__init__(message)
        self.status = status


def _reasons(gpu: Gpu) -> str:
    """Return why the clocks are held down: idle, or what the file `throttle` says of busy GPUs."""
    if not gpu.busy:
        return "0x0000000000000001"
    try:
        mask = (Path(os.environ.get("SIMULATOR_ROOT", "/nonexistent")) / "throttle").read_text()
    except OSError:
        mask = "0"
    return f"0x{int(mask, 16):016x}"


def gpus_now(root: Path) -> list[Gpu]:
    """Return the GPUs with those who hold them at this moment."""
    files = gpu_files(root)
    found = holders(files)
    return [Gpu(int(file.name[6:]), tuple(h for h in found if h.device == file)) for file in files]


def table(
    fields: dict[str, tuple[str, Callable[..., object]]],
    asked: Sequence[str],
    rows: Sequence[tuple[object, ...]],
    formats: set[str],
) -> list[str]:
    """Return the lines of a CSV answer; `rows` are the arguments of the fields' functions."""
    for name in asked:
        if name not in fields:
            raise Refused(f'Field "{name}" is not a valid field to query.\n\n')
    nounits = "nounits" in formats
    lines = [] if "noheader" in formats else [", ".join(_title(n, fields, nounits) for n in asked)]
    lines += (", ".join(_cell(fields[name], row, nounits) for name in asked) for row in rows)
    return lines


def _title(name: str, fields: dict[str, tuple[str, Callable[..., object]]], nounits: bool) -> str:
    unit = fields[name][0]
    return f"{name} [{unit}]" if unit else name


def _cell(field: tuple[str, Callable[..., object]], row: tuple[object, ...], nounits: bool) -> str:
    unit, value = field[0], str(field[1](*row))
    return value if nounits or not unit or value.startswith("[") else f"{value} {unit}"


def answer(argv: Sequence[str], root: Path) -> list[str]:
    """Return what nvidia-smi would print for these arguments."""
    options = dict(arg.partition("=")[::2] for arg in argv if arg.startswith("--"))
    gpus = _selected(gpus_now(root), argv, options)
    if not gpus:
        raise Refused("No devices were found\n\n", NO_DEVICES_EXIT)
    formats = set(options.get("--format", "csv").split(","))
    if query := options.get("--query-gpu"):
        return table(GPU_FIELDS, _split(query), [(gpu,) for gpu in gpus], formats)
    if query := options.get("--query-compute-apps"):
        rows = [(gpu, holder) for gpu in gpus for holder in gpu.holders]
        return table(APP_FIELDS, _split(query), rows, formats)
    if unknown := [arg for arg in argv if arg not in ("-L", "--list-gpus")]:
        raise Refused(f"Invalid combination of input arguments: {unknown[0]}. "
                      "Please run 'nvidia-smi -h' for help.\n\n", 1)  # fmt: skip
    return [f"GPU {gpu.index}: {NAME} (UUID: {gpu.uuid})" for gpu in gpus]


def _selected(gpus: list[Gpu], argv: Sequence[str], options: dict[str, str]) -> list[Gpu]:
    """Return the GPUs that `-i` or `--id` names, by index or UUID; all without it."""
    chosen = options.get("--id")
    if "-i" in argv[:-1]:
        chosen = argv[argv.index("-i") + 1]
    if chosen is None:
        return gpus
    names = chosen.split(",")
    return [gpu for gpu in gpus if str(gpu.index) in names or gpu.uuid in names]


def _split(query: str) -> list[str]:
    return [name.strip() for name in query.split(",")]


def main(argv: Sequence[str] | None = None) -> int:
    root = Path(os.environ.get("SIMULATOR_ROOT", "/nonexistent"))
    asked = sys.argv[1:] if argv is None else list(argv)
    while True:
        try:
            lines = answer(asked, root)
        except Refused as refused:
            sys.stdout.write(str(refused))
            return refused.status
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        every_ms = loop_ms(asked)
        if every_ms is None:
            return 0
        time.sleep(every_ms / 1000)


def loop_ms(argv: Sequence[str]) -> int | None:
    """Return how often `-lms` or `--loop-ms` asks again, None where once is enough."""
    for before, word in zip(("", *argv), argv, strict=False):
        if word.startswith("--loop-ms="):
            return int(word.partition("=")[2])
        if before in ("-lms", "--loop-ms"):
            return int(word)
    return None


if __name__ == "__main__":
    sys.exit(main())
