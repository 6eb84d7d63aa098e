"""One short name for everything of a stack that can change a measurement."""

import hashlib
import json

from tasks.domain.facts import StackFacts

_TORCH = ("version", "cuda", "cudnn", "nccl", "cxx11_abi")


def fingerprint(facts: StackFacts) -> str:
    """12 hexadecimal digits: Python, wheels, torch's CUDA, cuDNN and NCCL, driver, GPU models.

    Not in it: times, memory in use, folders, variables; those differ from one look to the next or
    belong to a trial's configuration.
    """
    content = {
        "python": facts.python_version,
        "packages": {package.name: package.version for package in facts.packages},
        "distributions": dict(facts.distributions),
        "torch": {name: facts.torch.get(name) for name in _TORCH},
        "driver": sorted({gpu.driver_version for gpu in facts.gpus}),
        "gpus": sorted(gpu.name for gpu in facts.gpus),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
