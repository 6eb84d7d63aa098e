"""How the GPUs are connected and set: captured answers of nvidia-smi, and what follows."""

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.facts import GpuState, Severity, StackFacts, XidFacts
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.gpu_states import FIELDS, gather_states, parse_matrix, parse_states
from tasks.stack.probe.machine import records
from tests.stack.factory import SOUND, sweep

DATA = Path(__file__).parent / "data"
SMI = """#!/bin/sh
case "$1" in
*fabric.state*|*pcie.link.gen.gpumax*)
  for name in fabric.state pcie.link.gen.gpumax; do
    case "$1" in *$name*) echo "Field \\"$name\\" is not a valid field to query."; exit 2;; esac
  done;;
esac
echo "0, 00000000:01:00.0, 1, 5, 8, 16, Enabled, 0, No, No, Enabled, Default, [N/A], \
180, 2430, 600.00, 600.00, 0x0000000000000001"
"""


def test_the_links_between_gpus() -> None:
    assert parse_matrix((DATA / "topo-m.txt").read_text()) == {
        "0-1": "NV18", "0-2": "NV18", "0-3": "SYS", "1-2": "NV18", "1-3": "SYS", "2-3": "PHB",
    }  # fmt: skip
    peers = parse_matrix((DATA / "topo-p2p-r.txt").read_text())
    assert peers == {"0-1": "OK", "0-2": "NS", "1-2": "NS"}
    assert parse_matrix("No devices were found\n") == {}


def test_fields_that_a_gpu_does_not_have() -> None:
    row = "3, [N/A], 1, 5, [N/A], 16, 16, [N/A], [Not Supported], N/A, No, Disabled, Default, "
    row += "[N/A], [N/A], 180, [N/A], [N/A], 600.00, 0x0000000000000024"
    (state,) = parse_states(f"{row}\nNVIDIA-SMI has failed\n", list(FIELDS))
    assert state == GpuState(
        3, pcie_gen=1, pcie_gen_max=5, pcie_width=16, pcie_width_max=16, remap_failed="No",
        persistence="Disabled", compute_mode="Default", sm_clock_mhz=180.0,
        power_limit_default_w=600.0, throttle=("sw_power_cap", "sw_thermal_slowdown"),
    )  # fmt: skip


async def test_a_field_that_the_driver_does_not_know_is_left_out(
    host: Host, tmp_path: Path
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    settings = host.settings.model_copy(update={"nvidia_smi": (str(smi),)})
    async with connect("here", settings) as asked:
        (state,) = await gather_states(asked)
    assert (state.pcie_width, state.pcie_width_max, state.pcie_gen_gpu) == (8, 16, None)
    assert (state.persistence, state.sm_clock_max_mhz) == ("Enabled", 2430.0)


async def test_no_nvidia_smi_is_no_state(host: Host) -> None:
    assert await gather_states(host) == ()


def test_the_kernel_s_log() -> None:
    fault = "6,1234,567890000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n K=v\n"
    assert records(fault) == [
        (567.89, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    ]
    assert records("6,1234,567890000,-;usb 1-1: new device\n") == []


def with_state(**changes: object) -> StackFacts:
    states = tuple(GpuState(n, pcie_width=16, pcie_width_max=16) for n in range(7))
    return replace(SOUND, gpu_states=(*states, replace(states[0], index=7, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "severity", "mode", "said"),
    [
        ({"pcie_width": 8}, Severity.WARNING, None, "GPU 7 runs narrower"),
        ({"pcie_gen_max": 4, "pcie_gen_gpu": 5}, Severity.INFO, None, "newer PCIe generation"),
        ({"pcie_gen": 1, "pcie_gen_max": 5, "pcie_gen_gpu": 5}, None, None, ""),
        ({"ecc_errors": 3}, Severity.WARNING, "gpu-hardware-fault", "could not be corrected"),
        ({"remap_pending": "Yes"}, Severity.WARNING, "gpu-hardware-fault", "waits for a reset"),
        ({"compute_mode": "Prohibited"}, Severity.ERROR, "driver-not-visible", "prohibits"),
        ({"mig": "Enabled"}, Severity.WARNING, None, "MIG is on"),
        ({"fabric": "In Progress"}, Severity.WARNING, "fabric-manager-not-ready", "not ready"),
        ({"fabric": "Completed"}, None, None, ""),
        ({"throttle": ("hw_thermal_slowdown",)}, Severity.WARNING, None, "held down"),
        ({"throttle": ("sw_power_cap",)}, None, None, ""),
        ({"power_limit_w": 300.0, "power_limit_default_w": 600.0}, Severity.INFO, None, "lowered"),
    ],
)
def test_one_gpu_that_is_not_as_the_others(
    changes: dict[str, object], severity: Severity | None, mode: str | None, said: str
) -> None:
    found = check_stack(with_state(**changes), None)
    assert [(f.severity, f.mode) for f in found] == ([(severity, mode)] if severity else [])
    assert all(said in finding.summary for finding in found)


def test_pairs_without_peer_access() -> None:
    facts = replace(SOUND, peers={"0-1": "OK", "0-2": "NS"})
    (finding,) = check_stack(facts, sweep())
    assert (finding.severity, finding.mode) == (Severity.WARNING, "custom-allreduce-no-p2p")
    off = {"model_path": "/m", "args": {"tp": 8, "disable_custom_all_reduce": True}}
    peerless = [f.severity for f in check_stack(facts, sweep(server=off)) if "peer" in f.summary]
    assert peerless == [Severity.INFO]


XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid=1234, name=python"


@pytest.mark.parametrize(
    ("code", "age_s", "told"),
    [(79, 120.0, "2 min ago"), (79, 8 * 86400.0, ""), (31, 60.0, ""), (63, 60.0, "")],
)
def test_what_the_kernel_logged(code: int, age_s: float, told: str) -> None:
    facts = replace(SOUND, xids=(XidFacts(age_s, XID.format(code)),) * 2)
    found = check_stack(facts, None)
    assert [f.mode for f in found] == (["gpu-hardware-fault"] if told else [])
    assert all(told in finding.summary for finding in found)


def test_a_log_that_may_not_be_read_tells_nothing() -> None:
    assert check_stack(replace(SOUND, xids=None), None) == ()
