"""The catalogue of failure modes, one family a file.

The order matters where one line is a sign of several modes: the first entry whose sign holds
wins, so that the specific stand before the general.
"""

from tasks.failures.catalogue import (
    architecture,
    cudnn,
    flags,
    hardware,
    hub,
    jit,
    libraries,
    memory,
    model,
    nccl,
    processes,
    speculative,
)
from tasks.failures.catalogue.entry import Mode

FAMILIES: dict[str, tuple[Mode, ...]] = {
    "cuDNN": cudnn.MODES,
    "Shared libraries": libraries.MODES,
    "Kernels built on the spot": jit.MODES,
    "GPU architecture": architecture.MODES,
    "The GPUs and their driver": hardware.MODES,
    "NCCL, shared memory, custom all-reduce": nccl.MODES,
    "GPU memory and graph capture": memory.MODES,
    "Processes and ports": processes.MODES,
    "Speculative decoding": speculative.MODES,
    "The model": model.MODES,
    "Hub, disk, permissions": hub.MODES,
    "Launch flags": flags.MODES,
}

MODES: tuple[Mode, ...] = tuple(mode for family in FAMILIES.values() for mode in family)

BY_NAME: dict[str, Mode] = {mode.name: mode for mode in MODES}
