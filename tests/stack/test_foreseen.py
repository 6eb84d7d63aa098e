"""Every failure mode of the catalogue is either foreseen by a check, or it is said why not."""

from dataclasses import replace

import pytest

from settings.sweep import Sweep
from tasks.domain.facts import (
    ModelFacts,
    PackageFacts,
    PlaceFacts,
    StackFacts,
    XidFacts,
)
from tasks.failures.catalogue import BY_NAME
from tasks.stack.checks import check_stack
from tests.stack.factory import KIMI, SOUND, sweep, with_system, with_torch, without

GONE = "cannot open shared object file: No such file or directory"


def failing(error: str, name: str = "sgl_kernel") -> StackFacts:
    return without(SOUND, name, f"ImportError: {error}")


def wheels(**versions: str) -> StackFacts:
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    return replace(SOUND, distributions={**SOUND.distributions, **named})


def models(*facts: ModelFacts) -> StackFacts:
    return replace(SOUND, models=facts)


def with_env(**env: str) -> StackFacts:
    return replace(SOUND, env=env)


def with_args(**args: object) -> Sweep:
    return sweep(server={"model_path": "/models/kimi", "args": {"tp": 8, **args}})


OLD_SGLANG = replace(
    with_torch(SOUND, cudnn=91002),
    packages=(SOUND.packages[0], PackageFacts("sglang", "0.5.6", True), *SOUND.packages[2:]),
)
DEEP_GEMM = PackageFacts("deep_gemm", "2.1.0", True)
DRAFT = ModelFacts("/models/draft", True, config={"vocab_size": 32_000}, shards=1)
SPECULATES = sweep(
    axes={"speculative_steps": [0, 3]}, speculative={"draft_model_path": "/models/draft"}
)
OLD_KERNEL = replace(wheels(sgl_kernel="0.3.0"), pins={"sgl-kernel": "0.3.21"})
ALONE = replace(SOUND, gpus=SOUND.gpus[:4])

FORESEEN: dict[str, StackFacts | tuple[StackFacts, Sweep]] = {
    "cudnn-conv3d-check": with_torch(SOUND, cudnn=91002),
    "cudnn-conv3d-check-no-bypass": OLD_SGLANG,
    "cudnn-not-initialized": wheels(nvidia_cudnn_cu12="9.16.0"),
    "cudnn-sublibrary-mismatch": wheels(nvidia_cudnn_cu12="9", nvidia_cudnn_cu13="9"),
    "cudnn-version-incompatible": with_torch(SOUND, cudnn_error="cuDNN version incompatibility"),
    "nccl-library-mismatch": failing("libtorch_cuda.so: undefined symbol: ncclCommResume", "torch"),
    "driver-symbol-missing": failing("x.so: undefined symbol: cuGreenCtxStreamCreate"),
    "dual-cuda-runtime": wheels(nvidia_cuda_runtime="13.0", nvidia_cuda_runtime_cu12="12.8"),
    "glibcxx-too-old": failing("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found"),
    "glibc-too-old": failing("/lib/libm.so.6: version `GLIBC_2.38' not found"),
    "abi-undefined-symbol": failing("x.so: undefined symbol: _ZN3c104cuda9SetDeviceEa"),
    "driver-not-visible": failing(f"libcuda.so.1: {GONE}"),
    "shared-lib-missing-wrong-major": failing(f"libnvrtc.so.12: {GONE}"),
    "shared-lib-not-on-path": failing(f"libnuma.so.1: {GONE}"),
    "cuda-home-malformed": with_system(with_env(CUDA_HOME=":/usr/local/cuda"), tools={}),
    "nvcc-not-found": with_system(SOUND, tools={}),
    "deepgemm-jit-failed": replace(
        with_system(SOUND, tools={"nvcc": "12.1"}), packages=(*SOUND.packages[:-1], DEEP_GEMM)
    ),
    "flashinfer-jit-header-missing": with_system(SOUND, headers_missing=("curand.h",)),
    "flashinfer-jit-build-failed": with_system(SOUND, tools={"nvcc": "12.1"}),
    "flashinfer-version-mismatch": wheels(flashinfer_cubin="0.6.2"),
    "flashinfer-version-mismatch-minor": wheels(flashinfer_cubin="0.5.3"),
    "flashinfer-below-minimum": wheels(flashinfer_python="0.6.1"),
    "flashinfer-not-installed": without(SOUND, "flashinfer"),
    "hang-stale-jit-lock": with_system(SOUND, build_locks=("/c/lock",)),
    "startup-timeout-slow-import": without(SOUND, "torch", "did not finish in time"),
    "triton-ptxas-too-old": with_system(SOUND, tools={"triton ptxas": "12.4", "nvcc": "13.0"}),
    "torch-build-lacks-arch": with_torch(SOUND, arch_list=["sm_80", "sm_90"]),
    "no-kernel-image": replace(SOUND, device_code={"/v/sgl_kernel/common_ops.so": ("sm_90a",)}),
    "attention-backend-unsupported": (SOUND, with_args(attention_backend="fa3")),
    "gpu-hardware-fault": replace(SOUND, xids=(XidFacts(9.0, "NVRM: Xid (PCI:0000:3b:00): 79,"),)),
    "fabric-manager-not-ready": with_system(SOUND, driver_status="802"),
    "driver-too-old": with_system(SOUND, driver_cuda=12080),
    "too-few-gpus": (ALONE, sweep()),
    "shm-full-leaked-segments": with_system(SOUND, shm_free_bytes=1 << 20),
    "shm-too-small": with_system(SOUND, shm_total_bytes=64 << 20),
    "custom-allreduce-no-p2p": replace(SOUND, peers={"0-1": "NS"}),
    "nccl-collective-timeout": with_env(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1"),
    "hang-nccl-init": with_env(NCCL_SOCKET_IFNAME="ib0"),
    "dist-timeout": with_env(GLOO_SOCKET_IFNAME="ib0"),
    "host-oom-kill": (with_system(SOUND, memory_limit_bytes=8 << 30), sweep()),
    "oom-weight-load": (models(replace(KIMI, bytes=1 << 41)), sweep()),
    "spec-draft-mismatch": (models(KIMI, DRAFT), SPECULATES),
    "spec-kernel-missing": (OLD_KERNEL, SPECULATES),
    "kernel-package-outdated": OLD_KERNEL,
    "model-arch-unsupported": (models(replace(KIMI, served=False)), sweep()),
    "transformers-too-old": (models(replace(KIMI, known_type=False)), sweep()),
    "trust-remote-code": (
        models(replace(KIMI, known_type=False, config={"auto_map": {"AutoConfig": "a.B"}})),
        sweep(),
    ),
    "model-path-missing": (models(ModelFacts("/models/kimi", False)), sweep()),
    "weights-corrupt": (models(replace(KIMI, damaged={"a": "8 bytes of 9"})), sweep()),
    "weights-missing": (models(replace(KIMI, missing=("a",))), sweep()),
    "disk-full": with_system(SOUND, places={"cache": PlaceFacts("/c", 1)}),
    "hub-network": (
        replace(with_env(HF_HUB_OFFLINE="1"), models=(ModelFacts("a/b", False, hub=True),)),
        sweep(server={"model_path": "a/b", "args": {"tp": 8}}),
    ),
    "permission-denied-cache": with_system(SOUND, places={"c": PlaceFacts("/c", writable=False)}),
    "flag-ambiguous": (SOUND, with_args(speculative_num=3)),
    "flag-unknown": (SOUND, with_args(tp_sise=8)),
    "flag-bad-choice": (SOUND, with_args(attention_backend="nosuch")),
}
"""Mode -> facts, with a sweep where it takes one, from which a check foresees it."""

LOADS = "what a launch does to the GPUs' memory is known only while it does it"
RUNS = "it comes up while the server runs, on a stack that loads"
OTHERS = "the step that frees the GPUs judges who holds them, right before each launch"
PORTS = "a free port is looked for right before each launch"
TOGETHER = "which flags go together is decided in SGLang's code, another way in each version"
HUB = "only asking the hub would tell, and validation asks nobody outside the host"

NOT_FORESEEN: dict[str, str] = {
    "cudnn-error": RUNS,
    "startup-timeout-slow-jit": "how long kernels take to build shows only by building them",
    "triton-kernel-unsupported-on-arch": "which kernels a model needs is known only at its launch",
    "illegal-memory-access": RUNS,
    "device-side-assert": RUNS,
    "cuda-error": RUNS,
    "nccl-nvls-bind-failed": "NVLS binds when the first communicator is made, with a CUDA context",
    "nccl-oom-buffers": LOADS,
    "custom-allreduce-graph-register": LOADS,
    "custom-allreduce-crash": RUNS,
    "nccl-unhandled-cuda-error": RUNS,
    "nccl-unhandled-system-error": RUNS,
    "stale-processes": OTHERS,
    "gpu-memory-imbalance": OTHERS,
    "gpu-memory-imbalance-self": LOADS,
    "oom-no-feasible-memfrac": LOADS,
    "kv-alloc-not-enough-memory": LOADS,
    "oom-cuda-graph-capture": LOADS,
    "oom-serving": LOADS,
    "oom-kv-cache": LOADS,
    "graph-capture-other": LOADS,
    "scheduler-watchdog-timeout": RUNS,
    "scheduler-died-silently": RUNS,
    "scheduler-child-died": RUNS,
    "port-in-use-http": PORTS,
    "port-in-use-dist": PORTS,
    "spec-page-size": TOGETHER,
    "spec-topk-unsupported": TOGETHER,
    "flag-conflict": TOGETHER,
    "model-module-import-failed": "importing a model's module takes as long as a launch's start",
    "warmup-failed": RUNS,
    "hub-gated": HUB,
    "hub-gated-but-cached": HUB,
}
"""Mode -> why no check before a launch can foresee it."""


def test_each_mode_is_foreseen_or_it_is_said_why_not() -> None:
    assert FORESEEN.keys() | NOT_FORESEEN.keys() == BY_NAME.keys()
    assert not FORESEEN.keys() & NOT_FORESEEN.keys()


@pytest.mark.parametrize("mode", FORESEEN)
def test_it_is_foreseen(mode: str) -> None:
    case = FORESEEN[mode]
    facts, plan = case if isinstance(case, tuple) else (case, None)
    findings = [f for f in check_stack(facts, plan) if f.mode == mode]
    assert findings
    assert all(finding.fix and "\n" not in finding.summary for finding in findings)


def test_no_check_names_a_mode_that_the_catalogue_lacks() -> None:
    every = [(case if isinstance(case, tuple) else (case, None)) for case in FORESEEN.values()]
    named = {f.mode for facts, plan in every for f in check_stack(facts, plan)} - {None}
    assert named <= BY_NAME.keys()
