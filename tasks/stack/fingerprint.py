"""One short name for everything of a stack that can change a measurement."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.domain.facts import StackFacts

_TORCH = ("version", "cuda", "cudnn", "nccl", "cxx11_abi")


def fingerprint(facts: StackFacts) -> str:
    """12 hexadecimal digits: Python, wheels, torch's CUDA, cuDNN and NCCL, driver, GPU models.

    Not in it: times, memory in use, folders, variables; those differ from one look to the next or
    belong to a trial's configuration.
    """
    text = json.dumps(_content(facts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def fingerprint_of_all(fingerprints: Sequence[str]) -> str:
    """The fingerprint of a stack on several hosts: their common one, or one for just this mix."""
    if len(set(fingerprints)) == 1:
        return fingerprints[0]
    return hashlib.sha256(" ".join(fingerprints).encode()).hexdigest()[:12]


def differences(one: StackFacts, other: StackFacts) -> tuple[str, ...]:
    """What makes two fingerprints differ, a line each: `sglang 0.5.9 against 0.5.23`."""
    was, now = _flat(_content(one)), _flat(_content(other))
    return tuple(
        f"{name} {was.get(name)} against {now.get(name)}"
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    )


def _flat(content: Mapping[str, Any]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in content.items():
        named = value if isinstance(value, dict) else {name: value}
        prefix = "torch's " if name == "torch" else ""
        flat |= {f"{prefix}{key}": item for key, item in named.items()}
    return flat


def _content(facts: StackFacts) -> Mapping[str, Any]:
    return {
        "python": facts.python_version,
        "packages": {package.name: package.version for package in facts.packages},
        "distributions": dict(facts.distributions),
        "torch": {name: facts.torch.get(name) for name in _TORCH},
        "driver": sorted({gpu.driver_version for gpu in facts.gpus}),
        "gpus": sorted(gpu.name for gpu in facts.gpus),
    }
