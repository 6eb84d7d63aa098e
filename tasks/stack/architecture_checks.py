"""Judge for which GPUs torch and the compiled kernels hold code."""

from collections.abc import Iterator

from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackFacts


def check_architecture(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """torch must hold code for the GPUs: binaries of the same major, or PTX of an older one."""
    built = facts.torch.get("arch_list")
    if not isinstance(built, list) or not built:
        return
    for capability in sorted({gpu.compute_capability for gpu in facts.gpus} - {""}):
        if not any(_serves(arch, capability) for arch in built):
            yield Finding(
                Severity.ERROR,
                f"torch has no code for GPUs of compute capability {capability}",
                f"torch {facts.torch.get('version')} was built for {' '.join(built)}",
                "install a torch built for this GPU (a newer CUDA)",
                "torch-build-lacks-arch",
            )


def _serves(arch: str, capability: str) -> bool:
    """`sm_90` runs on 9.x from 9.0 on; `sm_90a` only on 9.0; `compute_80` is compiled for newer.

    An `a` says the same of code that is still to be compiled, an `f` that it is for a family.
    """
    kind, _, number = arch.partition("_")
    digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
    if not digits.isdigit():
        return False
    theirs = (int(digits[:-1]), int(digits[-1]))
    mine = tuple(int(part) for part in capability.split("."))
    if digits != number and not number.endswith("f"):
        return theirs == mine
    if kind == "compute" and digits == number:
        return theirs <= mine
    return theirs[0] == mine[0] and theirs <= mine


def check_device_code(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """What a package's import loaded must hold code for the GPUs.

    A package may load several files, each for some GPUs: one that serves is enough. A warning,
    since not every model calls its kernels.
    """
    for package in ("sgl_kernel", "flash_attn", "deep_gemm"):
        built = {a for p, told in facts.device_code.items() if f"/{package}" in p for a in told}
        for capability in sorted({gpu.compute_capability for gpu in facts.gpus} - {""}):
            if built and not any(_serves(arch, capability) for arch in built):
                yield Finding(
                    Severity.WARNING,
                    f"{package} has no code for GPUs of compute capability {capability}",
                    f"it was built for {' '.join(sorted(built))}",
                    f"install a {package} that was built for this GPU",
                    "no-kernel-image",
                )
