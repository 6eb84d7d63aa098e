"""Judge the GPUs: how they are connected, how they are set, and what the kernel saw of them."""

import re
from collections.abc import Iterable, Iterator

from settings.sweep import Sweep
from tasks.domain.facts import Finding, GpuState, Severity, StackFacts

_HARDWARE_XIDS: dict[int, str] = {
    48: "double-bit memory error",
    62: "internal micro-controller halt",
    64: "a bad memory row could not be taken out of use",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single-bit memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the GPU's system processor doesn't answer",
    120: "the GPU's system processor failed",
    140: "unrecovered memory error",
    143: "the GPU could not be initialized",
    154: "the GPU needs a reset or a restart of the host",
}
"""Xids that are the hardware's or the driver's; others follow from what a program did (NVIDIA's
"Xid Errors")."""

_RECENT_S = 7 * 86400.0
_NOT_READY = ("In Progress", "Not Started")
_SLOWED = {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
_LOWERED = 0.95


def check_links(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """A link that runs narrower than it could halves what ranks can tell each other."""
    narrow = [g for g in facts.gpu_states if (g.pcie_width or 99) < (g.pcie_width_max or 0)]
    if narrow:
        yield Finding(
            Severity.WARNING,
            f"the PCIe link of {_named(narrow)} runs narrower than it could",
            ", ".join(f"{g.index}: x{g.pcie_width} of x{g.pcie_width_max}" for g in narrow),
            "reseat the card or its riser, and look at the slot's setting in the BIOS",
        )
    slow = [g for g in facts.gpu_states if (g.pcie_gen_max or 99) < (g.pcie_gen_gpu or 0)]
    if slow:
        yield Finding(
            Severity.INFO,
            f"{_named(slow)} could do a newer PCIe generation than the slot does",
            ", ".join(f"{g.index}: {g.pcie_gen_max} of {g.pcie_gen_gpu}" for g in slow),
            "look at the slot's setting in the BIOS",
        )


def check_peers(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Without peer access SGLang's own all-reduce can't work."""
    without = [f"{pair} {said}" for pair, said in facts.peers.items() if said != "OK"]
    if without:
        off = bool(sweep) and sweep is not None and _custom_off(sweep)
        yield Finding(
            Severity.INFO if off or sweep is None else Severity.WARNING,
            f"{len(without)} of {len(facts.peers)} pairs of GPUs have no peer access",
            ", ".join(without[:6]),
            "" if off else "set server.args.disable_custom_all_reduce: true",
            "custom-allreduce-no-p2p",
        )


def _custom_off(sweep: Sweep) -> bool:
    return sweep.server.args.get("disable_custom_all_reduce") is True


def check_health(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Memory errors, and rows of memory that wait for a reset."""
    states = facts.gpu_states
    faulty = [g for g in states if g.ecc_errors]
    if faulty:
        yield Finding(
            Severity.WARNING,
            f"{_named(faulty)} had memory errors that could not be corrected",
            ", ".join(f"{g.index}: {g.ecc_errors}" for g in faulty),
            "reset the GPU; replace it if they come back",
            "gpu-hardware-fault",
        )
    for words, remapped in (
        (
            "waits for a reset to take bad memory out of use",
            [g for g in states if _yes(g.remap_pending)],
        ),
        ("could not take bad memory out of use", [g for g in states if _yes(g.remap_failed)]),
    ):
        if remapped:
            yield Finding(
                Severity.WARNING,
                f"{_named(remapped)} {words}",
                "remapped_rows of nvidia-smi",
                "reset the GPU; replace it if that doesn't help",
                "gpu-hardware-fault",
            )


def _yes(said: str) -> bool:
    return said.lower() in ("yes", "1")


def check_xids(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Faults of the hardware that the kernel logged lately, each kind once, the latest shown."""
    latest: dict[int, tuple[float, str]] = {}
    for each in facts.xids or ():
        match = re.search(r"Xid \([^)]*\): (\d+)", each.text)
        code = int(match.group(1)) if match else 0
        if code in _HARDWARE_XIDS and each.age_s < _RECENT_S:
            latest[code] = min(latest.get(code, (each.age_s, each.text)), (each.age_s, each.text))
    for code, (age_s, text) in sorted(latest.items()):
        yield Finding(
            Severity.WARNING,
            f"the kernel logged Xid {code} {_ago(age_s)}: {_HARDWARE_XIDS[code]}",
            text[:300],
            "look at that GPU before the night: reset it or restart the host",
            "gpu-hardware-fault",
        )


def _ago(age_s: float) -> str:
    return f"{age_s / 3600:.0f} h ago" if age_s >= 3600 else f"{age_s / 60:.0f} min ago"


def check_modes(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Modes in which a server can't use a GPU, or not the whole of it."""
    states = facts.gpu_states
    if prohibited := [g for g in states if g.compute_mode == "Prohibited"]:
        yield Finding(
            Severity.ERROR,
            f"{_named(prohibited)}: the compute mode prohibits any use",
            "",
            "nvidia-smi --compute-mode=DEFAULT",
            "driver-not-visible",
        )
    if parted := [g for g in states if g.mig == "Enabled"]:
        yield Finding(
            Severity.WARNING,
            f"{_named(parted)}: MIG is on, a server sees a part of the GPU at most",
            "",
            "nvidia-smi --multi-instance-gpu=0, if that was not meant",
        )
    if waiting := [g for g in states if g.fabric in _NOT_READY]:
        yield Finding(
            Severity.WARNING,
            f"{_named(waiting)}: the fabric between the GPUs is not ready",
            f"fabric.state {waiting[0].fabric}",
            "start nvidia-fabricmanager, and wait until its state is Completed",
            "fabric-manager-not-ready",
        )


def check_speed(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """What makes the numbers those of a slower GPU."""
    states = facts.gpu_states
    if slowed := [g for g in states if _SLOWED & set(g.throttle)]:
        yield Finding(
            Severity.WARNING,
            f"{_named(slowed)}: the clocks are held down already before any load",
            ", ".join(f"{g.index}: {' '.join(g.throttle)}" for g in slowed),
            "look at cooling and power supply",
        )
    if lowered := [g for g in states if _is_lowered(g)]:
        yield Finding(
            Severity.INFO,
            f"{_named(lowered)}: the power limit is lowered",
            ", ".join(
                f"{g.index}: {g.power_limit_w:.0f} of {g.power_limit_default_w:.0f} W"
                for g in lowered
            ),
            "",
        )
    if facts.gpus and len({gpu.name for gpu in facts.gpus}) > 1:
        yield Finding(
            Severity.INFO,
            "the GPUs are of different kinds: the slowest sets the pace",
            ", ".join(sorted({gpu.name for gpu in facts.gpus})),
        )


def _is_lowered(gpu: GpuState) -> bool:
    limit, default = gpu.power_limit_w, gpu.power_limit_default_w
    return limit is not None and default is not None and limit < _LOWERED * default


def _named(gpus: Iterable[GpuState]) -> str:
    indices = [str(gpu.index) for gpu in gpus]
    return f"GPU {indices[0]}" if len(indices) == 1 else f"GPUs {', '.join(indices)}"
