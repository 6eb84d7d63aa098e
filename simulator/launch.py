"""One launch: what was asked for, on which pretend host, and what goes wrong with it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulator.flags import Configuration
from simulator.model import Memory, Speed, memory_of, speed_of
from simulator.scenario import Fault, Scenario, strike


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that a server needs to know about itself."""

    configuration: Configuration
    scenario: Scenario
    faults: Mapping[str, Fault]
    root: Path | None
    environment: Mapping[str, str]
    model_config: Mapping[str, Any]
    speed: Speed
    memory: Memory

    @property
    def context_length(self) -> int:
        asked = self.configuration.context_length
        known = self.model_config.get("max_position_embeddings")
        return asked or known or self.scenario.parameters.context_length

    @property
    def version(self) -> str:
        return self.scenario.sglang_version

    @property
    def architecture(self) -> str:
        return str(
            (self.model_config.get("architectures") or ["KimiK25ForConditionalGeneration"])[0]
        )

    @property
    def broken(self) -> Fault | None:
        """Return the fault that makes this server answer fast but wrong, if any."""
        return self.faults.get("garbage") or self.faults.get("nan")

    def rank(self, number: int) -> str:
        """Return the log prefix of a scheduler: none where there is only one."""
        return f"TP{number}" if self.configuration.tp_size > 1 else ""


def read_model_config(model_path: str) -> Mapping[str, Any] | None:
    """Return the model's config.json, or None where there is no such model."""
    try:
        config: Mapping[str, Any] = json.loads((Path(model_path) / "config.json").read_text())
    except (OSError, ValueError):
        return None
    return config


def checkpoint_mib(model_path: str) -> float | None:
    """Return the size of the weights that the safetensors index declares, or None."""
    try:
        index = json.loads((Path(model_path) / "model.safetensors.index.json").read_text())
        return float(index["metadata"]["total_size"]) / 2**20
    except (OSError, ValueError, KeyError, TypeError):
        return None


def plan(
    configuration: Configuration,
    scenario: Scenario,
    model_config: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> Launch:
    """Put a launch together, and count it with the faults that strike only so often."""
    root = Path(environment["SIMULATOR_ROOT"]) if environment.get("SIMULATOR_ROOT") else None
    faults = strike(scenario.faults, configuration, environment, root)
    broken = faults.get("garbage") or faults.get("nan")
    memory = memory_of(configuration, scenario.parameters, checkpoint_mib(configuration.model_path))
    return Launch(
        configuration=replace(configuration, arguments=resolved(configuration, memory)),
        scenario=scenario,
        faults=faults,
        root=root,
        environment=environment,
        model_config=model_config,
        speed=speed_of(
            configuration,
            environment,
            scenario.parameters,
            broken.number("speedup", 1.0) if broken else 1.0,
        ),
        memory=memory,
    )


def resolved(configuration: Configuration, memory: Memory) -> dict[str, Any]:
    """Return the arguments with what SGLang works out from the host before it logs them."""
    arguments = dict(configuration.arguments)
    arguments["mem_fraction_static"] = memory.mem_fraction_static
    arguments["attention_backend"] = arguments["attention_backend"] or "flashinfer"
    if configuration.speculation:
        arguments["max_running_requests"] = memory.max_running_requests
    if "cuda_graph_bs" in arguments and configuration.cuda_graph_max_bs:
        arguments["cuda_graph_bs"] = capture_sizes(configuration.cuda_graph_max_bs)
    return arguments


def capture_sizes(largest: int) -> list[int]:
    """Return the batch sizes that get a graph: dense while small, every 8th, then every 16th."""
    sizes = {1, 2, 4, *range(8, 257, 8), *range(272, 513, 16), *range(544, largest + 1, 32)}
    return sorted({size for size in sizes if size <= largest} | {largest})
