"""Ask nvidia-smi how the GPUs are connected and set; what it prints, read by pure functions.

Fields come and go between drivers, and one that a driver doesn't know spoils the whole query, so
it is asked again without that one.
"""

import csv
import re
from collections.abc import Mapping, Sequence

from tasks.domain.errors import HostError
from tasks.domain.facts import GpuState
from tasks.domain.nvidia_smi import throttles
from tasks.hosts.host import Host

FIELDS: Mapping[str, str] = {
    "index": "index",
    "bus_id": "pci.bus_id",
    "pcie_gen": "pcie.link.gen.current",
    "pcie_gen_max": "pcie.link.gen.max",
    "pcie_gen_gpu": "pcie.link.gen.gpumax",
    "pcie_width": "pcie.link.width.current",
    "pcie_width_max": "pcie.link.width.max",
    "ecc": "ecc.mode.current",
    "ecc_errors": "ecc.errors.uncorrected.volatile.total",
    "remap_pending": "remapped_rows.pending",
    "remap_failed": "remapped_rows.failure",
    "persistence": "persistence_mode",
    "compute_mode": "compute_mode",
    "mig": "mig.mode.current",
    "fabric": "fabric.state",
    "sm_clock_mhz": "clocks.sm",
    "sm_clock_max_mhz": "clocks.max.sm",
    "power_limit_w": "power.limit",
    "power_limit_default_w": "power.default_limit",
    "throttle": "clocks_throttle_reasons.active",
}
"""Our name -> nvidia-smi's."""

_WHOLE = ("index", "pcie_gen", "pcie_gen_max", "pcie_gen_gpu", "pcie_width", "pcie_width_max",
          "ecc_errors")  # fmt: skip
_REFUSED = re.compile(r'Field "([^"]+)" is not a valid field')
_TIMEOUT_S = 30.0


async def gather_states(host: Host) -> tuple[GpuState, ...]:
    """Ask for every field that this driver has; nothing where nvidia-smi can't be asked."""
    names = list(FIELDS)
    while len(names) > 1:
        query = ",".join(FIELDS[name] for name in names)
        ok, said = await _ask(host, f"--query-gpu={query}", "--format=csv,noheader,nounits")
        refused = _REFUSED.search(said)
        unknown = [name for name in names if refused and FIELDS[name] == refused.group(1)]
        if ok or not unknown:
            return parse_states(said, names) if ok else ()
        names.remove(unknown[0])
    return ()


async def gather_matrix(host: Host, *question: str) -> dict[str, str]:
    """Ask `nvidia-smi topo` for one of its matrices; nothing where it has none."""
    ok, said = await _ask(host, "topo", *question)
    return parse_matrix(said) if ok else {}


async def _ask(host: Host, *question: str) -> tuple[bool, str]:
    try:
        completed = await host.run(
            [*host.settings.nvidia_smi, *question], timeout_s=_TIMEOUT_S, repeatable=True
        )
    except HostError as error:
        return False, str(error)
    # nvidia-smi complains on standard output.
    return completed.ok, (completed.stdout + completed.stderr).decode(errors="replace")


def parse_states(text: str, names: Sequence[str]) -> tuple[GpuState, ...]:
    """Read the answer to a query of those of our `FIELDS`; lines of another width are no GPU."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    named = [dict(zip(names, map(str.strip, row), strict=True)) for row in rows
             if len(row) == len(names) and row[0].strip().isdigit()]  # fmt: skip
    return tuple(_state(row) for row in named)


def _state(row: Mapping[str, str]) -> GpuState:
    values: dict[str, object] = {}
    for name, field in row.items():
        if name == "throttle":
            values[name] = throttles(field)
        elif name in _WHOLE:
            values[name] = int(field) if field.isdigit() else None
        elif name.endswith(("_mhz", "_w")):
            values[name] = _number(field)
        else:
            values[name] = "" if field.startswith("[") or field == "N/A" else field
    return GpuState(**values)  # type: ignore[arg-type]


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None


def parse_matrix(text: str) -> dict[str, str]:
    """Read a matrix of `nvidia-smi topo`: `{"0-1": "NV18"}`, each pair once."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]
    heads = [re.findall(r"\bGPU(\d+)\b", line) for line in lines]
    columns = next((head for head in heads if len(head) > 1), [])
    pairs: dict[str, str] = {}
    for line in lines:
        row = re.match(r"\s*GPU(\d+)((?:\s+(?!GPU)\S+)+)", line)
        cells = row.group(2).split() if row else []
        if row and len(cells) >= len(columns):
            for column, cell in zip(columns, cells, strict=False):
                if int(row.group(1)) < int(column):
                    pairs[f"{row.group(1)}-{column}"] = cell
    return pairs
