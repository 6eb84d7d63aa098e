"""Judge the compilers that kernels are built with at launch: ptxas, nvcc, the C compiler."""

from collections.abc import Iterator

from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackFacts
from tasks.stack.system_checks import cpu_only
from tasks.stack.versions import below

NVCC_NEEDED = {"9": "12.3", "10": "12.8", "12": "12.8"}
"""GPU's major compute capability -> the first CUDA whose nvcc compiles all of flashinfer and
DeepGEMM for it (their documentation; CUDA's release notes for the architecture)."""

_PTXAS_FIX = (
    "name the ptxas of a CUDA toolkit that knows the GPU (12.8 or newer for Blackwell) in both "
    "TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH"
)


def check_cuda_home(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """A variable that points to where no toolkit is."""
    home = facts.env.get("CUDA_HOME") or facts.env.get("CUDA_PATH") or ""
    if home and (":" in home or "nvcc" not in facts.system.tools):
        yield Finding(
            Severity.WARNING,
            f"CUDA_HOME is {home}, where no nvcc is",
            "",
            "point it to a toolkit's folder, or unset it",
            "cuda-home-malformed",
        )


def ptxas_of(facts: StackFacts, capability: str) -> str:
    """Which ptxas Triton would use for a GPU, by its name in `SystemFacts.tools`; empty for none.

    Triton asks `ptxas-blackwell` from compute capability 10 on where it brings one (the newest
    from 9 on), and `ptxas` else; for either a variable names another, which is passed over where
    it can't be run (`get_ptxas` and `env_nvidia_tool` in its sources).
    """
    tools = facts.system.tools
    newer = "triton ptxas-blackwell" in tools and not below(capability, "10.0")
    named = ("TRITON_PTXAS_BLACKWELL_PATH", "triton ptxas-blackwell")
    order = named if newer else ("TRITON_PTXAS_PATH", "triton ptxas")
    return next((name for name in order if tools.get(name)), "")


def check_ptxas(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """The ptxas that Triton takes must know each GPU; a variable may name one that doesn't run."""
    system = facts.system
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        if name in system.tools and not system.tools[name]:
            yield Finding(
                Severity.WARNING,
                f"{name} names a ptxas that can't be run",
                f"{facts.env.get(name)}",
                _PTXAS_FIX,
                "triton-ptxas-too-old",
            )
    for capability in sorted({gpu.compute_capability for gpu in facts.gpus} - {""}):
        chosen = ptxas_of(facts, capability)
        if chosen and not _knows(facts, chosen, capability):
            known = ", ".join(system.architectures.get(chosen, ())[-4:])
            where = system.tool_paths.get(chosen) or facts.env.get(chosen)
            yield Finding(
                Severity.WARNING,
                f"the ptxas that Triton would use doesn't know GPUs of compute capability "
                f"{capability}",
                f"{chosen}: {where}, release {system.tools[chosen]}"
                + (f", knows up to {known}" if known else ""),
                _PTXAS_FIX,
                "triton-ptxas-too-old",
            )


def _knows(facts: StackFacts, tool: str, capability: str) -> bool:
    """By the list that the tool prints; without one, by its release."""
    listed = facts.system.architectures.get(tool)
    if listed:
        return capability.replace(".", "") in listed
    return below(capability, "10.0") or not below(facts.system.tools[tool], "12.8")


def check_builders(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Triton compiles a launcher in C for every kernel; flashinfer and DeepGEMM need nvcc."""
    if cpu_only(facts) or not facts.gpus:
        return
    system = facts.system
    triton = "triton ptxas" in system.tools
    if triton and system.programs and not system.programs["cc"]:
        yield Finding(
            Severity.WARNING,
            "there is no C compiler, which Triton needs for its kernels",
            "neither CC nor gcc, cc or clang on the path",
            "install gcc, or name a compiler in CC",
        )
    if triton and not system.python_headers:
        yield Finding(
            Severity.WARNING,
            "Python's headers are missing, which Triton needs for its kernels",
            f"no Python.h for Python {facts.python_version}",
            "install the python3-dev package of this Python",
        )
    yield from _for_flashinfer(facts)


def _for_flashinfer(facts: StackFacts) -> Iterator[Finding]:
    """flashinfer builds at launch what no jit-cache wheel brings."""
    flashinfer, system = facts.package("flashinfer"), facts.system
    if flashinfer is None or not flashinfer.imported or not system.programs:
        return
    if "flashinfer-jit-cache" in facts.distributions:
        return
    if "nvcc" not in system.tools:
        if facts.env.get("CUDA_HOME") or facts.env.get("CUDA_PATH"):
            return  # check_cuda_home has said so
        yield Finding(
            Severity.WARNING,
            "there is no nvcc, and no flashinfer-jit-cache wheel that would do without",
            f"CUDA_HOME {system.cuda_home or 'not set'}, no nvcc on the path",
            "install the CUDA toolkit and set CUDA_HOME, or the flashinfer-jit-cache wheel",
            "nvcc-not-found",
        )
        return
    if system.headers_missing:
        yield Finding(
            Severity.WARNING,
            f"the CUDA toolkit lacks {', '.join(system.headers_missing)}",
            f"{system.cuda_home}/include",
            "install the toolkit's development packages, or put the folders of the nvidia wheels' "
            "headers on CPATH",
            "flashinfer-jit-header-missing",
        )
    if not (system.programs.get("ninja") or system.programs.get("ninja beside python")):
        yield Finding(
            Severity.WARNING,
            "there is no ninja, which flashinfer builds its kernels with",
            "",
            "install the ninja wheel",
            "flashinfer-jit-build-failed",
        )
    yield from check_nvcc(facts)


def check_nvcc(facts: StackFacts) -> Iterator[Finding]:
    """An nvcc that is older than the GPU can't compile for it."""
    release = facts.system.tools.get("nvcc", "")
    for capability in sorted({gpu.compute_capability for gpu in facts.gpus} - {""}):
        needed = NVCC_NEEDED.get(capability.partition(".")[0])
        if needed and release and below(release, needed):
            deep_gemm = facts.package("deep_gemm")
            yield Finding(
                Severity.WARNING,
                f"nvcc {release} is too old for GPUs of compute capability {capability}",
                facts.system.tool_paths.get("nvcc", ""),
                f"install a CUDA toolkit of {needed} or newer and point CUDA_HOME to it",
                "deepgemm-jit-failed"
                if deep_gemm and deep_gemm.imported
                else "flashinfer-jit-build-failed",
            )


def check_build_locks(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """torch's extension builder waits for ever on the lock of a build that was killed."""
    locks = facts.system.build_locks
    if locks:
        yield Finding(
            Severity.WARNING,
            f"{len(locks)} locks of kernel builds are older than any build takes",
            ", ".join(locks[:3]),
            "remove them, if nothing builds there",
            "hang-stale-jit-lock",
        )
