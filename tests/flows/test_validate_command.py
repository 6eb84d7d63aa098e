"""`validate` as people and machines call it: exit status, JSON, what changed since a sweep."""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from flows.cli import run_command
from settings.host import Host as HostSettings
from settings.sweep import Sweep
from tasks.domain.facts import StackReport
from tasks.hosts.connect import connect
from tasks.results.store import create_sweep, record_stack
from tasks.stack.validate import validate
from tests.stack.factory import sweep

PROJECT = Path(__file__).resolve().parents[2]
BROKEN = '[[fault]]\nkind = "abi-undefined-symbol"\nwhen = {stack = "cu128"}\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A simulated host whose second stack is broken, and its definition."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "scenario.toml").write_text(BROKEN)
    options = ["--root", folder / "sim", "--scenario", folder / "scenario.toml"]
    command = [sys.executable, "-m", "simulator.host", *map(str, options)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return folder / "sim", done.stdout


@pytest.fixture
def definition(
    made: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> HostSettings:
    (tmp_path / "sglang-sweep.toml").write_text('store = "sweeps"\n' + made[1])
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", str(tmp_path / "sglang-sweep.toml"))
    monkeypatch.chdir(tmp_path)
    python = made[0] / "stacks" / "cu130" / "bin" / "python3"
    smi, env = (str(made[0] / "bin" / "nvidia-smi"),), {"SIMULATOR_ROOT": str(made[0])}
    launch, folder = ("-m", "simulator.launch_server"), str(made[0] / "run")
    return HostSettings(
        stacks=(str(python),), nvidia_smi=smi, env=env, launch=launch, run_folder=folder
    )


def objects(text: str) -> list[dict[str, object]]:
    """The JSON objects that stand one after another."""
    found, decoder = [], json.JSONDecoder()
    while text.strip():
        value, end = decoder.raw_decode(text.lstrip())
        found.append(value)
        text = text.lstrip()[end:]
    return found


def night(model: Path) -> Sweep:
    return sweep(server={"model_path": str(model), "args": {"tp": 8}})


async def known(settings: HostSettings, asked: Sweep) -> StackReport:
    """What a sweep would have found, but for an older triton and a stray variable."""
    async with connect("simulated", settings) as host:
        (report,) = await validate(host, asked)
    packages = tuple(
        replace(package, version="3.5.0") if package.name == "triton" else package
        for package in report.facts.packages
    )
    env = {**report.facts.env, "NCCL_ALGO": "Tree"}
    return replace(report, facts=replace(report.facts, packages=packages, env=env))


def test_what_changed_since_a_sweep(
    made: tuple[Path, str], definition: HostSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = night(made[0] / "models" / "kimi")
    folder = create_sweep(Path("sweeps"), asked, now=time.time())
    record_stack(folder, asyncio.run(known(definition, asked)), now=time.time())

    status, told = _run(capsys, "validate", "simulated", "--json", "--against", "latest")
    new, old = objects(told)
    assert status == 0
    assert new["changes"] == [
        {"name": "triton", "before": "3.5.0", "after": "3.5.1"},
        {"name": "variable NCCL_ALGO", "before": "Tree", "after": "absent"},
    ]
    assert new["facts"]["models"][0]["shards"] == 64
    assert old["changes"] is None, "the sweep knew nothing of that stack"

    status, told = _run(capsys, "validate", "simulated", "--against", folder.sweep_id)
    assert (status, "triton" in told, "3.5.0" in told) == (0, True, True)
    assert f"{folder.sweep_id} knew nothing of this stack" in told


def test_what_machines_read(definition: HostSettings, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = _run(capsys, "validate", "simulated", "--json")
    new, old = objects(told)
    assert status == 0, "one of the two stacks can serve"
    assert new.keys() == {"host", "stack", "fingerprint", "facts", "findings"}
    assert new["findings"] == []
    assert old["findings"][0].keys() == {"severity", "mode", "summary", "evidence", "fix"}
    assert old["findings"][0]["severity"] == "error"


def test_no_stack_that_can_serve_needs_a_person(
    definition: HostSettings, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    only_broken = definition.stacks[0].replace("cu130", "cu128")
    text = f'[hosts.box]\nstacks = ["{only_broken}"]\nrun_folder = "{tmp_path}/run"\n'
    (tmp_path / "sglang-sweep.toml").write_text(text)
    status, told = _run(capsys, "validate", "box")
    assert status == 3
    assert "unfit" in told


def test_a_sweep_that_is_not_in_the_store(
    definition: HostSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["validate", "simulated", "--against", "nosuch"]) == 2
    assert "no sweep in this store yet" in capsys.readouterr().err


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = run_command(list(words))
    return status, capsys.readouterr().out
