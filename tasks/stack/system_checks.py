"""Judge the driver, and whether torch sees the GPUs that there are."""

from collections.abc import Iterator

from settings.nodes import most_nodes
from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackFacts

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
    """Tensor parallelism over more GPUs than the nodes have can't work."""
    args = sweep.server.args if sweep else {}
    seen = facts.torch.get("device_count")
    there = min(len(facts.gpus), seen if isinstance(seen, int) and seen else len(facts.gpus))
    nodes = most_nodes(sweep) if sweep else 1
    if not facts.gpus:
        return
    for name in ("tp", "tp_size", "tensor_parallel_size"):
        wanted = args.get(name)
        if isinstance(wanted, int) and wanted > there * nodes:
            each = f" on each of {nodes} nodes" if nodes > 1 else ""
            hidden = f"torch sees {there} of {len(facts.gpus)}" if there < len(facts.gpus) else ""
            yield Finding(
                Severity.ERROR,
                f"server.args.{name} is {wanted}, but there are {there} GPUs{each}",
                hidden,
                f"set {name} to at most {there * nodes}"
                + (", or mend CUDA_VISIBLE_DEVICES" if hidden else ""),
                "too-few-gpus",
            )
