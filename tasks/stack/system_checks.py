"""Judge what lies below the stack: driver, GPUs, toolkit, model folder, space."""

from collections.abc import Iterator

from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackFacts
from tasks.stack.versions import below

_CUINIT: dict[str, tuple[str, str, str]] = {
    "802": (
        "fabric-manager-not-ready",
        "the fabric between the GPUs is not ready",
        "start nvidia-fabricmanager",
    ),
    "803": (
        "driver-too-old",
        "the driver and its library are of different versions",
        "restart the host after the driver's update",
    ),
    "804": (
        "driver-too-old",
        "the driver is too old for its library, and these GPUs allow no mixture",
        "update the NVIDIA driver",
    ),
}
"""What `cuInit` returns -> mode, words, way out (CUresult in cuda.h)."""

LITTLE_DISK_BYTES = 5 << 30
LITTLE_SHM_BYTES = 1 << 30


def cpu_only(facts: StackFacts) -> bool:
    """Whether SGLang is told to do without a GPU."""
    return facts.env.get("SGLANG_USE_CPU_ENGINE", "").lower() in ("1", "true", "yes", "on")


def check_driver(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """The driver must serve torch's CUDA major, and answer."""
    system, cuda = facts.system, facts.torch.get("cuda")
    if cpu_only(facts) or not isinstance(cuda, str):
        return
    if system.driver_cuda and system.driver_cuda // 1000 < int(cuda.partition(".")[0]):
        yield Finding(
            Severity.ERROR,
            f"the driver serves CUDA {system.driver_cuda // 1000}, torch is built for CUDA {cuda}",
            f"cuDriverGetVersion says {system.driver_cuda}",
            "update the NVIDIA driver, or use a stack for its CUDA",
            "driver-too-old",
        )
    elif system.driver_status in _CUINIT:
        mode, words, fix = _CUINIT[system.driver_status]
        evidence = f"cuInit returns {system.driver_status}"
        yield Finding(Severity.ERROR, words, evidence, fix, mode)


def check_gpus(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Whether there are GPUs, whether torch sees them, and whether they suffice."""
    seen = facts.torch.get("device_count")
    if not facts.gpus:
        severity = Severity.INFO if cpu_only(facts) else Severity.WARNING
        fix = "" if cpu_only(facts) else "a server without GPUs needs SGLANG_USE_CPU_ENGINE=1"
        yield Finding(severity, "no GPU is visible", facts.gpus_error, fix)
    elif seen == 0 and not cpu_only(facts):
        yield Finding(
            Severity.ERROR,
            f"torch sees none of the {len(facts.gpus)} GPUs",
            f"torch.cuda.device_count() is 0; torch {facts.torch.get('version')}",
            "install a CUDA build of torch, and check CUDA_VISIBLE_DEVICES",
            "driver-not-visible",
        )
    yield from _enough(facts, sweep)


def _enough(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Tensor parallelism over more GPUs than one node has can't work."""
    args = sweep.server.args if sweep else {}
    if not facts.gpus or "nnodes" in args:
        return
    for name in ("tp", "tp_size", "tensor_parallel_size"):
        wanted = args.get(name)
        if isinstance(wanted, int) and wanted > len(facts.gpus):
            summary = f"server.args.{name} is {wanted}, but there are {len(facts.gpus)} GPUs"
            yield Finding(Severity.ERROR, summary, "", f"set {name} to at most {len(facts.gpus)}")


def check_tools(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Toolkits and ptxas that variables point to, which kernels are compiled with at launch."""
    home = facts.env.get("CUDA_HOME") or facts.env.get("CUDA_PATH") or ""
    if home and (":" in home or "nvcc" not in facts.system.tools):
        yield Finding(
            Severity.WARNING,
            f"CUDA_HOME is {home}, where no nvcc is",
            "",
            "point it to a toolkit's folder, or unset it",
            "cuda-home-malformed",
        )
    blackwell = any(
        not below(gpu.compute_capability, "10.0") for gpu in facts.gpus if gpu.compute_capability
    )
    for name, release in facts.system.tools.items():
        if name != "nvcc" and (not release or (blackwell and below(release, "12.8"))):
            yield Finding(
                Severity.WARNING,
                f"{name} names a ptxas that "
                + ("doesn't know these GPUs" if release else "can't be run"),
                f"{facts.env.get(name)}: release {release or 'unknown'}",
                "unset it, or name the ptxas of CUDA 12.8 or newer in both TRITON_PTXAS_PATH and "
                "TRITON_PTXAS_BLACKWELL_PATH",
                "triton-ptxas-too-old",
            )


def check_paths(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """The model must be there; a draft model that is not costs the speculating trials only."""
    for path, there in facts.system.paths.items():
        if there or sweep is None:
            continue
        draft = path != sweep.server.model_path
        relative = not path.startswith(("/", "~"))
        yield Finding(
            Severity.WARNING if draft else Severity.ERROR,
            f"{'speculative.draft_model_path' if draft else 'server.model_path'}: "
            f"there is no {path} on the host",
            "",
            "write it from the root: a server runs in a folder of its own"
            if relative
            else "put the model there, or correct the path",
            "model-path-missing",
        )


def check_space(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Room for logs and caches, and for NCCL's shared memory between ranks."""
    system = facts.system
    if system.disk_free_bytes is not None and system.disk_free_bytes < LITTLE_DISK_BYTES:
        yield Finding(
            Severity.WARNING,
            f"{system.disk_free_bytes / 2**30:.1f} GiB are free where the run folder lies",
            "",
            "make room, or set the host's run_folder to a larger disk",
            "disk-full",
        )
    if system.shm_total_bytes is not None and system.shm_total_bytes < LITTLE_SHM_BYTES:
        yield Finding(
            Severity.WARNING if len(facts.gpus) > 1 else Severity.INFO,
            f"/dev/shm is {system.shm_total_bytes / 2**20:.0f} MiB",
            "",
            "start the container with --shm-size=16g or --ipc=host",
            "shm-too-small",
        )
