"""A sound stack, to be changed by the one thing that a test is about."""

from dataclasses import replace

from settings.sweep import Sweep
from tasks.domain.facts import (
    Flag,
    GpuFacts,
    ModelFacts,
    PackageFacts,
    StackFacts,
    SystemFacts,
)

GPUS = tuple(
    GpuFacts(i, "NVIDIA RTX PRO 6000 Blackwell", f"GPU-{i}", 97887, 4, "580.95.05", "12.0")
    for i in range(8)
)
OPTIONS = (
    Flag(("model_path", "model"), True, True),
    Flag(("tp_size", "tensor_parallel_size"), True, True),
    Flag(("cuda_graph_max_bs",), True, True),
    Flag(("attention_backend",), True, True, ("flashinfer", "triton", "fa3")),
    Flag(("trust_remote_code",), False, False),
    Flag(("model_checksum",), True, False),
    Flag(("lora_target_modules",), True, False, ("q_proj", "k_proj", "all")),
    Flag(("speculative_algorithm",), True, True, ("EAGLE", "EAGLE3", "NEXTN")),
    Flag(("speculative_draft_model_path", "speculative_draft_model"), True, True),
    Flag(("speculative_num_steps",), True, True),
    Flag(("speculative_eagle_topk",), True, True),
    Flag(("speculative_num_draft_tokens",), True, True),
)
SOUND = StackFacts(
    interpreter="/venv/bin/python3",
    python_version="3.12.3",
    platform="Ubuntu 24.04.2 LTS, 6.8.0",
    packages=(
        PackageFacts("torch", "2.9.1+cu130", True, 4.0),
        PackageFacts("sglang", "0.5.9", True, 1.0),
        PackageFacts("transformers", "4.57.1", True, 2.0),
        PackageFacts("sgl_kernel", "0.3.21", True, 1.0),
        PackageFacts("flashinfer", "0.6.3", True, 3.0),
        PackageFacts("triton", "3.5.1", True, 0.5),
        PackageFacts("flash_attn", None, False),
        PackageFacts("deep_gemm", None, False),
    ),
    torch={
        "version": "2.9.1+cu130",
        "cuda": "13.0",
        "cudnn": 91600,
        "nccl": "2.28.9",
        "cxx11_abi": True,
        "arch_list": ["sm_80", "sm_90", "sm_100", "sm_120"],
        "device_count": 8,
    },
    flags=frozenset(name for option in OPTIONS for name in option.names),
    gpus=GPUS,
    options=OPTIONS,
    distributions={"sglang": "0.5.9", "flashinfer-python": "0.6.3", "sgl-kernel": "0.3.21"},
    pins={"flashinfer-python": "0.6.3", "sgl-kernel": "0.3.21"},
    system=SystemFacts(
        glibc="2.39",
        driver_cuda=13000,
        driver_status="ok",
        shm_total_bytes=64 << 30,
        shm_free_bytes=64 << 30,
        disk_free_bytes=500 << 30,
        tools={"nvcc": "13.0", "triton ptxas": "12.8"},
        programs={"cc": "/usr/bin/gcc", "c++": "/usr/bin/g++", "ninja": "/usr/bin/ninja"},
        interfaces=("eth0", "lo"),
    ),
)

KIMI = ModelFacts(
    "/models/kimi",
    True,
    config={
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "vocab_size": 163_840,
        "hidden_size": 7168,
    },
    bytes=500 << 30,
    shards=64,
    served=True,
    known_type=True,
)


def without(facts: StackFacts, name: str, error: str | None = None) -> StackFacts:
    """The stack with a package that isn't there, or whose import fails."""
    changed = tuple(
        PackageFacts(p.name, p.version if error else None, False, 0.1, error)
        if p.name == name
        else p
        for p in facts.packages
    )
    return replace(facts, packages=changed)


def with_system(facts: StackFacts, **changes: object) -> StackFacts:
    """The stack on a machine that differs."""
    return replace(facts, system=replace(facts.system, **changes))  # type: ignore[arg-type]


def with_torch(facts: StackFacts, **changes: object) -> StackFacts:
    """The stack with another torch."""
    return replace(facts, torch={**facts.torch, **changes})  # type: ignore[dict-item]


def sweep(**changes: object) -> Sweep:
    """A sweep of one workload."""
    content: dict[str, object] = {
        "name": "night",
        "server": {"model_path": "/models/kimi", "args": {"tp": 8}},
        "workloads": [{"name": "chat", "concurrency": [1]}],
    }
    return Sweep.model_validate({**content, **changes})


CPU = replace(
    with_torch(SOUND, version="2.9.1+cpu", cuda=None, cudnn=None, arch_list=None, device_count=0),
    gpus=(),
    gpus_error="can't run nvidia-smi",
    env={"SGLANG_USE_CPU_ENGINE": "1"},
)
