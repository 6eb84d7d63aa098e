"""Judge the facts of a stack: what would fail at launch, known before it.

Each check is a pure function that yields findings. An error is only what fails for certain; what
a remedy cures at launch, or what may be wrong, is a warning.
"""

from collections.abc import Callable, Iterator

from settings.sweep import Sweep
from tasks.domain.facts import Finding, PackageFacts, Severity, StackFacts
from tasks.stack.architecture_checks import check_architecture, check_device_code
from tasks.stack.extension_checks import (
    check_cuda_wheels,
    check_cudnn_of_torch,
    check_extensions,
    check_loaded,
)
from tasks.stack.flag_checks import check_backends, check_flags
from tasks.stack.gpu_checks import (
    check_health,
    check_links,
    check_modes,
    check_peers,
    check_speed,
    check_xids,
)
from tasks.stack.imports import cause_of
from tasks.stack.model_checks import check_fit, check_models
from tasks.stack.nccl_checks import check_interfaces, check_nccl
from tasks.stack.room_checks import check_limits, check_shm, check_space
from tasks.stack.startup_checks import check_overrides, check_preload, check_startup
from tasks.stack.system_checks import check_driver, check_gpus, cpu_only
from tasks.stack.toolkit_checks import (
    check_build_locks,
    check_builders,
    check_cuda_home,
    check_ptxas,
)
from tasks.stack.versions import below, cuda_of, major
from tasks.stack.wheel_checks import check_pins, check_requirements

CUDNN_NEEDED = 91500
"""SGLang refuses older ones beside torch 2.9.1: its Conv3d is slow and takes much memory."""

SLOW_IMPORT_S = 60.0


def check_stack(facts: StackFacts, sweep: Sweep | None) -> tuple[Finding, ...]:
    """Judge everything, the errors first; of an interpreter that can't be run, only that."""
    if facts.error:
        return (_unrunnable(facts),)
    found = [finding for check in _CHECKS for finding in check(facts, sweep)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def _unrunnable(facts: StackFacts) -> Finding:
    hangs = facts.error.startswith("it hangs")
    return Finding(
        Severity.ERROR,
        f"{facts.interpreter} hangs" if hangs else f"{facts.interpreter} can't be run",
        facts.error,
        "mend what its start-up files wait for"
        if hangs
        else "name a Python (3.8 or newer) that can import sglang in the host's stacks",
        "startup-timeout-slow-import" if hangs else None,
    )


def check_imports(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """What a server needs must be there and load; what it can do without is worth a warning."""
    for package in facts.packages:
        severity = _severity(package, facts)
        if package.imported:
            if package.import_s > SLOW_IMPORT_S:
                yield _slow(package)
        elif package.error is not None:
            yield _failed(package, facts, severity)
        elif severity is Severity.ERROR or (package.name == "flashinfer" and not cpu_only(facts)):
            yield _missing(package, facts, severity)


def _severity(package: PackageFacts, facts: StackFacts) -> Severity:
    """How much a server misses a package that is absent or fails.

    Absent transformers or triton is left to the launcher's own start: versions differ in what
    they need. A slow import is no error either, the launch may outwait it.
    """
    needed = {"torch", "sglang"}
    present = package.error is not None
    needed |= {"transformers"} if present else set()
    if not cpu_only(facts):
        needed |= {"sgl_kernel", "triton"} if present else {"sgl_kernel"}
    if package.name not in needed:
        optional = package.name in ("flash_attn", "deep_gemm") or cpu_only(facts)
        return Severity.INFO if optional else Severity.WARNING
    slow = package.error is not None and package.error.startswith("did not finish")
    return Severity.WARNING if slow else Severity.ERROR


def _slow(package: PackageFacts) -> Finding:
    return Finding(
        Severity.WARNING,
        f"{package.name} took {package.import_s:.0f} s to import",
        "",
        "a second start is faster; keep the environment on a local disk",
        "startup-timeout-slow-import",
    )


def _failed(package: PackageFacts, facts: StackFacts, severity: Severity) -> Finding:
    found = facts.system.libraries
    cause = cause_of(package.error or "", found, _torch_cuda(facts), facts.symbols)
    version = f" {package.version}" if package.version else ""
    name = f"{package.name}{version}"
    return Finding(
        severity, f"{name} can't be imported: {cause.explanation}", package.error or "",
        cause.fix, cause.mode,
    )  # fmt: skip


def _missing(package: PackageFacts, facts: StackFacts, severity: Severity) -> Finding:
    mode = "flashinfer-not-installed" if package.name == "flashinfer" else None
    evidence = f"no module {package.name} for {facts.interpreter} (Python {facts.python_version})"
    return Finding(severity, f"{package.name} is not installed", evidence, "install it", mode)


def check_launch(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """SGLang's own argument parser must start; what an import already explains isn't said twice."""
    package = facts.package("sglang")
    if not facts.flags_error or package is None or not package.imported:
        return
    if any(facts.flags_error == other.error for other in facts.packages):
        return
    cause = cause_of(facts.flags_error, facts.system.libraries, _torch_cuda(facts))
    unsure = facts.flags_error.startswith(("did not finish", "--help lists"))
    severity = Severity.WARNING if unsure else Severity.ERROR
    summary = f"the server's launcher doesn't start: {cause.explanation}"
    yield Finding(severity, summary, facts.flags_error, cause.fix, cause.mode)


def check_cudnn(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """SGLang's check of cuDNN beside torch 2.9.1: a warning, since a retry with its bypass works.

    0.5.6 has the check without the bypass; 0.5.23 has neither.
    """
    cudnn, torch = facts.torch.get("cudnn"), facts.torch.get("version")
    if not isinstance(cudnn, int) or cudnn >= CUDNN_NEEDED:
        return
    if not isinstance(torch, str) or torch.partition("+")[0] != "2.9.1":
        return
    sglang = facts.package("sglang")
    version = sglang.version if sglang else None
    if not below(version, "0.5.23") or facts.env.get("SGLANG_DISABLE_CUDNN_CHECK") == "1":
        return
    old = below(version, "0.5.9")
    yield Finding(
        Severity.WARNING,
        f"cuDNN {cudnn // 10000}.{cudnn // 100 % 100} is below 9.15, which SGLang wants beside "
        "torch 2.9.1",
        f"torch {torch}, cuDNN {cudnn}",
        "install cuDNN 9.15 or newer"
        + ("" if old else ", or set SGLANG_DISABLE_CUDNN_CHECK=1 (vision models get slower)"),
        "cudnn-conv3d-check-no-bypass" if old else "cudnn-conv3d-check",
    )


def check_cuda_majors(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Kernels built for another CUDA major than torch's don't load, or bring a second runtime."""
    torch_major = major(_torch_cuda(facts))
    if torch_major is None:
        return
    for name in ("flashinfer-jit-cache", "flashinfer-python", "sgl-kernel", "sglang-kernel"):
        version = facts.distributions.get(name)
        built = cuda_of(version)
        if built is not None and built != torch_major:
            yield Finding(
                Severity.ERROR,
                f"{name} is built for CUDA {built}, torch for CUDA {torch_major}",
                f"{name} {version}, torch {facts.torch.get('version')}",
                f"install the {name} wheel for CUDA {torch_major}",
                "shared-lib-missing-wrong-major",
            )
    if {"nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"} <= facts.distributions.keys():
        yield Finding(
            Severity.WARNING,
            "the CUDA 12 and CUDA 13 runtimes are both installed",
            "nvidia-cuda-runtime-cu12, nvidia-cuda-runtime",
            f"keep the one for torch's CUDA {torch_major}",
            "dual-cuda-runtime",
        )


def _torch_cuda(facts: StackFacts) -> str | None:
    cuda = facts.torch.get("cuda")
    return cuda if isinstance(cuda, str) else None


Check = Callable[[StackFacts, Sweep | None], Iterator[Finding]]
_CHECKS: tuple[Check, ...] = (
    check_imports,
    check_launch,
    check_extensions,
    check_loaded,
    check_startup,
    check_overrides,
    check_preload,
    check_cudnn,
    check_cudnn_of_torch,
    check_architecture,
    check_device_code,
    check_cuda_majors,
    check_cuda_wheels,
    check_pins,
    check_requirements,
    check_driver,
    check_gpus,
    check_modes,
    check_health,
    check_xids,
    check_links,
    check_peers,
    check_speed,
    check_cuda_home,
    check_ptxas,
    check_builders,
    check_build_locks,
    check_nccl,
    check_interfaces,
    check_flags,
    check_backends,
    check_models,
    check_fit,
    check_space,
    check_shm,
    check_limits,
)
