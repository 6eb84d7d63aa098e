"""The pretend host's folder: what a product finds there, and that making it twice is harmless."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

QUERY = (
    "index,name,uuid,memory.total,memory.used,utilization.gpu,power.draw,temperature.gpu,clocks.sm,"
    "clocks.mem,clocks_throttle_reasons.active,driver_version,compute_cap,pcie.link.gen.current,"
    "pcie.link.width.current,pcie.link.gen.max,pcie.link.width.max,ecc.mode.current,persistence_mode"
)
FACTS = """
import importlib.metadata as metadata, json, os
import torch, sglang, flashinfer, triton
print(json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
    "gpus": torch.cuda.device_count(), "available": torch.cuda.is_available(),
    "capability": torch.cuda.get_device_capability(), "archs": torch.cuda.get_arch_list(),
    "nccl": torch.cuda.nccl.version(), "cxx11": torch.compiled_with_cxx11_abi(),
    "sglang": sglang.__version__, "kernel": metadata.version("sgl-kernel"),
    "flashinfer": metadata.version("flashinfer-python"),
    "stack": os.environ["SIMULATOR_STACK"],
}))
"""


def run(*command: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd="/",
        env={**os.environ, **env},
    )


def smi(root: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(str(root / "bin" / "nvidia-smi"), *arguments)


def tree(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_the_definition_names_what_is_there(simulator) -> None:
    host = simulator.create_host()
    root = simulator.root
    assert host["launch"] == ["-m", "simulator.launch_server"]
    assert host["dedicated"] is True
    assert host["devices"] == f"{root}/dev/nvidia*"
    assert host["env"] == {
        "SIMULATOR_ROOT": str(root),
        "SIMULATOR_SCENARIO": str(simulator.folder / "scenario.toml"),
    }
    assert all(os.access(stack, os.X_OK) for stack in host["stacks"])
    assert len(list((root / "dev").glob("nvidia*"))) == 10
    assert (root / "models" / "kimi" / "config.json").exists()


def test_the_definition_as_toml_is_a_table_of_the_settings(simulator) -> None:
    made = simulator.program("simulator.host", "--root", str(simulator.root), "--gpus", "2")
    host = tomllib.loads(made.stdout)["hosts"]["simulated"]
    as_json = simulator.program(
        "simulator.host", "--root", str(simulator.root), "--gpus", "2", "--json"
    )
    assert host == json.loads(as_json.stdout)
    assert "SIMULATOR_SCENARIO" not in host["env"]


def test_creating_it_again_changes_nothing(simulator) -> None:
    simulator.create_host()
    before = tree(simulator.root / "stacks") | tree(simulator.root / "models")
    simulator.create_host()
    assert tree(simulator.root / "stacks") | tree(simulator.root / "models") == before


def test_a_scenario_that_is_wrong_is_told(simulator) -> None:
    path = simulator.folder / "bad.toml"
    path.write_text("nonsense = 1\n")
    made = simulator.program(
        "simulator.host", "--root", str(simulator.root), "--scenario", str(path)
    )
    assert made.returncode == 2
    assert made.stderr.startswith(f"simulator.host: scenario {path}: unknown key 'nonsense'")


@pytest.mark.parametrize(("name", "cuda"), [("cu130", "13.0"), ("cu128", "12.8")])
def test_a_stack_knows_its_versions(simulator, name: str, cuda: str) -> None:
    simulator.create_host()
    asked = run(str(simulator.root / "stacks" / name / "bin" / "python3"), "-c", FACTS)
    assert json.loads(asked.stdout) == {
        "torch": f"2.9.1+{name}",
        "cuda": cuda,
        "cudnn": 91600,
        "gpus": 8,
        "available": True,
        "capability": [12, 0],
        "archs": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
        "nccl": [2, 28, 9],
        "cxx11": True,
        "sglang": "0.5.9",
        "kernel": "0.3.21",
        "flashinfer": "0.6.3",
        "stack": name,
    }


def test_a_broken_stack_shows_when_it_is_imported(simulator) -> None:
    simulator.create_host('[[fault]]\nkind = "abi-undefined-symbol"\nwhen = {stack = "cu128"}\n')
    code = "import sgl_kernel"
    broken = run(str(simulator.root / "stacks" / "cu128" / "bin" / "python3"), "-c", code)
    sound = run(str(simulator.root / "stacks" / "cu130" / "bin" / "python3"), "-c", code)
    assert (broken.returncode, sound.returncode) == (1, 0)
    assert "ImportError: \n[sgl_kernel] CRITICAL" in broken.stderr
    assert "undefined symbol: _ZN3c10" in broken.stderr


def test_a_stack_with_the_old_cudnn_says_so(simulator) -> None:
    simulator.create_host('[[fault]]\nkind = "cudnn-check"\n')
    code = "import torch; print(torch.backends.cudnn.version())"
    asked = run(str(simulator.root / "stacks" / "cu130" / "bin" / "python3"), "-c", code)
    assert asked.stdout == "91002\n"


def test_nvidia_smi_answers_a_query(simulator) -> None:
    simulator.create_host()
    answer = smi(simulator.root, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
    rows = [line.split(", ") for line in answer.stdout.splitlines()]
    assert len(rows) == 8
    assert all(len(row) == 19 for row in rows)
    assert rows[3][:2] == ["3", "NVIDIA RTX PRO 6000 Blackwell Server Edition"]
    assert rows[3][3:6] == ["97887", "4", "0"]
    assert rows[3][12] == "12.0"
    with_units = smi(simulator.root, "--query-gpu=memory.total,index", "--format=csv", "-i", "2")
    assert with_units.stdout == "memory.total [MiB], index\n97887 MiB, 2\n"


def test_nvidia_smi_refuses_what_it_does_not_know(simulator) -> None:
    simulator.create_host()
    answer = smi(simulator.root, "--query-gpu=index,foo", "--format=csv")
    assert (answer.returncode, answer.stdout) == (
        2,
        'Field "foo" is not a valid field to query.\n\n',
    )
    assert smi(simulator.root, "--frobnicate").returncode == 1
    nowhere = smi(simulator.root, "-L", "--id=99")
    assert (nowhere.returncode, nowhere.stdout) == (6, "No devices were found\n\n")


def test_nvidia_smi_sees_who_computes(simulator) -> None:
    served = simulator.serve()
    apps = smi(
        simulator.root,
        "--query-compute-apps=pid,process_name,used_memory,gpu_uuid",
        "--format=csv,noheader,nounits",
    )
    rows = [line.split(", ") for line in apps.stdout.splitlines()]
    children = served.children()
    assert [int(row[0]) for row in rows] == [
        children[f"sglang::scheduler_TP{rank}"] for rank in range(8)
    ]
    listed = smi(simulator.root, "-L").stdout
    assert all(row[3] in listed for row in rows)
    query = ("--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader,nounits")
    assert smi(simulator.root, *query).stdout.splitlines() == ["89220, 97"] * 8
    served.stop()
    assert smi(simulator.root, *query).stdout.splitlines() == ["4, 0"] * 8
