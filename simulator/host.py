"""Create a pretend GPU host in a folder, and print how to reach it.

    python -m simulator.host --root DIR [--scenario FILE] [--gpus 8] [--json]

Makes `DIR/dev/nvidia*` (files that pretend servers hold open), `DIR/bin/nvidia-smi`, the
interpreters `DIR/stacks/cu130/bin/python3` and `…/cu128/…`, and `DIR/models/kimi` (with its draft
model `kimi-eagle3`). Creating it again changes nothing. Prints a host definition, as TOML or JSON.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator import scenario
from simulator.devices import control_files
from simulator.stacks import CUDA_OF, write_stack

REPOSITORY = Path(__file__).resolve().parent.parent
SHARDS, TOTAL_BYTES = 64, 609_280 * 2**20

CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "max_position_embeddings": 131_072,
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "vocab_size": 163_840,
    "torch_dtype": "bfloat16",
}
DRAFT_CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "max_position_embeddings": 131_072,
    "num_hidden_layers": 1,
    "hidden_size": 7168,
    "draft_vocab_size": 32_000,
}


NO_TENSORS = "\x02" + "\0" * 7 + "{}"
"""A safetensors file without tensors: the length of its header, 8 bytes, and the header."""


def write(path: Path, text: str, executable: bool = False) -> None:
    """Write a file whole, or leave it as it is if it says the same already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        part = path.with_name(f"{path.name}.part")
        part.write_text(text)
        part.rename(path)
    if executable:
        path.chmod(0o755)


def write_devices(root: Path, gpus: int) -> None:
    devices = [root / "dev" / f"nvidia{index}" for index in range(gpus)] + control_files(root)
    (root / "dev").mkdir(parents=True, exist_ok=True)
    for device in devices:
        device.touch()


def write_tools(root: Path) -> None:
    """Write the `nvidia-smi` of the pretend host."""
    write(
        root / "bin" / "nvidia-smi",
        "#!/bin/sh\n"
        f"export SIMULATOR_ROOT='{root}' PYTHONPATH='{REPOSITORY}'\n"
        f"exec '{sys.executable}' -S -m simulator.nvidia_smi \"$@\"\n",
        executable=True,
    )


def write_models(root: Path) -> None:
    """Write a model folder and its draft model: configuration, index, and shards of no tensor."""
    kimi = root / "models" / "kimi"
    write(kimi / "config.json", json.dumps(CONFIG, indent=2))
    weights = {
        f"model.layers.{layer}.weight": f"model-{layer + 1:05}-of-{SHARDS:06}.safetensors"
        for layer in range(SHARDS)
    }
    index = {"metadata": {"total_size": TOTAL_BYTES}, "weight_map": weights}
    write(kimi / "model.safetensors.index.json", json.dumps(index, indent=2))
    for shard in weights.values():
        write(kimi / shard, NO_TENSORS)
    draft = root / "models" / "kimi-eagle3"
    write(draft / "config.json", json.dumps(DRAFT_CONFIG, indent=2))
    write(draft / "model.safetensors", NO_TENSORS)


def definition(root: Path, scenario_file: Path | None) -> dict[str, Any]:
    """Return the host as a settings file would define it."""
    env = {"SIMULATOR_ROOT": str(root)}
    if scenario_file:
        env["SIMULATOR_SCENARIO"] = str(scenario_file)
    return {
        "stacks": [str(root / "stacks" / name / "bin" / "python3") for name in CUDA_OF],
        "launch": ["-m", "simulator.launch_server"],
        "devices": str(root / "dev" / "nvidia*"),
        "dedicated": True,
        "run_folder": str(root / "run"),
        "nvidia_smi": [str(root / "bin" / "nvidia-smi")],
        "env": env,
    }


def as_toml(name: str, values: Mapping[str, Any]) -> str:
    """Write one table of texts, booleans, lists of texts and a table of texts."""
    plain = {key: value for key, value in values.items() if not isinstance(value, dict)}
    lines = [f"[hosts.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
    for key, value in values.items():
        if isinstance(value, dict):
            lines += ["", f"[hosts.{name}.{key}]"]
            lines += [f"{inner} = {json.dumps(text)}" for inner, text in value.items()]
    return "\n".join(lines) + "\n"


def create(root: Path, scenario_file: Path | None, gpus: int) -> dict[str, Any]:
    """Create the host's folder and return its definition."""
    host = scenario.load(scenario_file)
    write_devices(root, gpus)
    write_tools(root)
    write_models(root)
    (root / "run").mkdir(exist_ok=True)
    for name in CUDA_OF:
        write_stack(root, name, host, REPOSITORY, write)
    return definition(root, scenario_file)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulator.host", description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--scenario", type=Path, default=os.environ.get("SIMULATOR_SCENARIO"))
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--name", default="simulated", help="the host's name in the TOML")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    scenario_file = asked.scenario.resolve() if asked.scenario else None
    try:
        values = create(asked.root.resolve(), scenario_file, asked.gpus)
    except scenario.ScenarioError as error:
        parser.exit(2, f"simulator.host: {error}\n")
    print(json.dumps(values) if asked.json else as_toml(asked.name, values), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
