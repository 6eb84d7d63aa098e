"""Validation of whole hosts: the simulated one, and the real SGLang where it is installed."""

import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.console import Console

from settings.host import Host as HostSettings
from tasks.domain.facts import Severity, StackReport
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.stack.render import report_view
from tasks.stack.validate import as_json, stacks_of, validate
from tests.stack.factory import sweep

PROJECT = Path(__file__).parents[2]
SCENARIO = """
[[fault]]
kind = "abi-undefined-symbol"
when = {stack = "cu128"}

[[fault]]
kind = "cudnn-check"
when = {stack = "cu130"}
"""


def printed(report: StackReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(report_view(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def pretended(tmp_path: Path) -> HostSettings:
    """The definition of a simulated host: one stack without the newest cuDNN, one broken."""
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    root = tmp_path / "sim"
    command = [sys.executable, "-m", "simulator.host", "--root", root, "--scenario", scenario]
    made = subprocess.run([*command, "--json"], cwd=PROJECT, capture_output=True, check=True)
    return HostSettings.model_validate_json(made.stdout)


@pytest.fixture
async def simulated(pretended: HostSettings) -> AsyncIterator[Host]:
    async with connect("simulated", pretended) as host:
        yield host


async def test_the_simulated_host(simulated: Host, tmp_path: Path) -> None:
    models = tmp_path / "sim" / "models"
    plan = sweep(
        server={"model_path": str(models / "kimi"), "args": {"tp": 8, "trust_remote_code": True}},
        axes={
            "cuda_graph_max_bs": [128, 256],
            "nccl_channels": [8],
            "speculative_steps": [0, 3],
            "args.attention_backend": ["flashinfer", "nosuch"],
        },
        speculative={"draft_model_path": str(models / "kimi-eagle3")},
    )
    new, old = await validate(simulated, plan)
    assert new.fit
    assert [(f.severity, f.mode) for f in new.findings] == [
        (Severity.WARNING, "cudnn-conv3d-check"),
        (Severity.WARNING, "flag-bad-choice"),
    ]
    assert len(new.facts.gpus) == 8
    assert "cuda_graph_max_bs" in new.facts.flags
    assert (new.facts.torch["cuda"], old.facts.torch["cuda"]) == ("13.0", "12.8")
    assert not old.fit
    assert "abi-undefined-symbol" in [finding.mode for finding in old.findings]
    assert new.fingerprint != old.fingerprint


async def test_json_and_terminal(simulated: Host) -> None:
    new, old = await validate(simulated)
    told = json.loads(json.dumps(as_json(old)))
    assert told.keys() == {"host", "stack", "fingerprint", "facts", "findings"}
    assert told["findings"][0].keys() == {"severity", "mode", "summary", "evidence", "fix"}
    assert told["findings"][0]["severity"] == "error"
    assert "tp_size" in told["facts"]["flags"]
    text = printed(old)
    assert "unfit" in text
    assert "[abi-undefined-symbol]" in text
    assert "way out: install the build that belongs to the installed torch" in text
    assert "8x NVIDIA RTX PRO 6000 Blackwell Server Edition, driver 580.95.05" in printed(new)


async def test_a_model_that_is_not_there_and_a_flag_for_all(simulated: Host) -> None:
    plan = sweep(server={"model_path": "/no/model", "args": {"tp": 16, "tp-sise": 1}})
    new, _ = await validate(simulated, plan)
    errors = [f for f in new.findings if f.severity is Severity.ERROR]
    assert [finding.mode for finding in errors] == [
        "too-few-gpus",
        "flag-unknown",
        "model-path-missing",
    ]
    assert errors[1].fix == "did you mean 'tp_size'?"


async def test_stacks_that_an_axis_adds_come_after_the_host_s(simulated: Host) -> None:
    first, second = simulated.settings.stacks
    added = stacks_of(simulated, sweep(axes={"stack": [second, "~/other/bin/python3"]}))
    assert added == [first, second, "~/other/bin/python3"]
    assert stacks_of(simulated, None) == [first, second]


async def test_the_sweep_s_variables_are_part_of_the_stack(simulated: Host) -> None:
    server = {"model_path": "hub/name", "env": {"SGLANG_DISABLE_CUDNN_CHECK": 1}}
    new, _ = await validate(simulated, sweep(server=server))
    assert [(f.severity, f.mode) for f in new.findings] == [(Severity.INFO, "hub-network")]


async def test_a_broken_stack_is_a_report_too(simulated: Host) -> None:
    broken = simulated.settings.model_copy(update={"stacks": ("/no/such/python",)})
    async with connect("broken", broken) as host:
        (report,) = await validate(host)
    assert not report.fit
    assert "can't be run" in printed(report)


@pytest.mark.real
async def test_the_real_sglang_gives_no_false_alarm(tmp_path: Path) -> None:
    python = PROJECT / ".real-sglang" / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip("the real SGLang is not installed: scripts/real_sglang/install.py does it")
    settings = HostSettings(
        stacks=(str(python),),
        run_folder=str(tmp_path / "run"),
        devices=str(tmp_path / "nvidia*"),
        nvidia_smi=("no-such-smi",),
        env={
            "PYTHONPATH": str(PROJECT / "scripts" / "real_sglang" / "shim"),
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
        },
    )
    async with connect("cpu", settings) as host:
        (report,) = await validate(host)
    assert {finding.severity for finding in report.findings} <= {Severity.INFO}
    assert len(report.facts.flags) > 300
