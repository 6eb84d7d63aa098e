"""The fingerprint changes with what matters, and with nothing else."""

from dataclasses import replace

import pytest

from tasks.domain.facts import GpuFacts, PackageFacts, StackFacts
from tasks.stack.fingerprint import fingerprint
from tests.stack.factory import GPUS, SOUND, with_system, with_torch

OTHER_GPU = GpuFacts(0, "NVIDIA H100", "GPU-x", 81559, 4, "580.95.05", "9.0")


def test_it_is_short_and_stable() -> None:
    assert fingerprint(SOUND) == fingerprint(SOUND)
    assert len(fingerprint(SOUND)) == 12
    assert set(fingerprint(SOUND)) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "changed",
    [
        replace(SOUND, python_version="3.12.4"),
        replace(SOUND, packages=(PackageFacts("torch", "2.9.0", True), *SOUND.packages[1:])),
        replace(SOUND, distributions={**SOUND.distributions, "nvidia-nccl-cu13": "2.28"}),
        with_torch(SOUND, cuda="12.8"),
        with_torch(SOUND, cudnn=91002),
        with_torch(SOUND, nccl="2.27.5"),
        replace(SOUND, gpus=GPUS[:4]),
        replace(SOUND, gpus=(OTHER_GPU, *GPUS[1:])),
        replace(SOUND, gpus=tuple(replace(gpu, driver_version="570.1") for gpu in GPUS)),
    ],
)
def test_what_matters(changed: StackFacts) -> None:
    assert fingerprint(changed) != fingerprint(SOUND)


@pytest.mark.parametrize(
    "changed",
    [
        replace(SOUND, interpreter="/elsewhere/python"),
        replace(SOUND, packages=tuple(replace(p, import_s=9.0) for p in SOUND.packages)),
        replace(SOUND, gpus=tuple(replace(gpu, memory_used_mib=9) for gpu in GPUS)),
        replace(SOUND, gpus=GPUS[::-1]),
        replace(SOUND, distributions=dict(reversed(SOUND.distributions.items()))),
        replace(SOUND, env={"NCCL_PROTO": "LL"}),
        with_system(SOUND, disk_free_bytes=1),
    ],
)
def test_what_does_not(changed: StackFacts) -> None:
    assert fingerprint(changed) == fingerprint(SOUND)
