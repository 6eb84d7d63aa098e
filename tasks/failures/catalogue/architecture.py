"""The GPU's architecture: what ptxas, torch, kernels and attention backends support."""

from tasks.domain.diagnosis import Action, Need, Phase, Remedy, Requirement
from tasks.failures.catalogue.entry import Mode, Sign, Spread, Variant

_CAPTURE = (Phase.GRAPH_CAPTURE, Phase.WARMUP, Phase.START)
_BACKEND_FLAGS = (
    *("*attention_backend", "page_size", "kv_cache_dtype", "dtype", "quantization"),
    *("speculative_*", "tp*", "tensor_parallel_size", "enable_dp_attention"),
)
_NOT_KERNELS = (
    *("mem_fraction_static", "max_total_tokens", "schedule_policy", "schedule_conservativeness"),
    *("stream_interval", "disable_radix_cache"),
)

MODES = (
    Mode(
        "triton-kernel-unsupported-on-arch",
        "A Triton kernel uses a feature, or more shared memory, than this GPU has; no newer ptxas"
        " helps. Leave this combination of backends out on this GPU.",
        Action.PRUNE,
        _CAPTURE,
        (
            Sign(r"[Ff]eature '.*' not supported on \.target"),
            Sign(r"out of resources?: (?:shared|tensor) memory"),
        ),
        spread=Spread(free=_NOT_KERNELS),
    ),
    Mode(
        "triton-ptxas-too-old",
        "Triton's own ptxas doesn't know this GPU. Set TRITON_PTXAS_PATH and"
        " TRITON_PTXAS_BLACKWELL_PATH to the CUDA toolkit's, or update Triton.",
        Action.RETRY,
        _CAPTURE,
        (
            Sign(r"Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'"),
            Sign(r"PTXAS error.*(?P<arch>sm_\w+).*(?:not defined|unsupported gpu)"),
        ),
        Remedy(
            "use the CUDA toolkit's ptxas",
            env={
                "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas",
                "TRITON_PTXAS_BLACKWELL_PATH": "/usr/local/cuda/bin/ptxas",
            },
            requires=(Requirement(Need.KNOWS, "/usr/local/cuda/bin/ptxas", "{arch}"),),
        ),
        check="/usr/local/cuda/bin/ptxas knows the architecture (ptxas --help)",
        stack_fault=True,
    ),
    Mode(
        "torch-build-lacks-arch",
        "This torch was built without code for this GPU. Install a torch build whose list of"
        " architectures holds it.",
        Action.STOP,
        (Phase.START, Phase.WEIGHTS, Phase.GRAPH_CAPTURE),
        (
            Sign(
                r"with CUDA capability sm_\w+ is not compatible with the current PyTorch",
                weak=True,
            ),
            Sign(r"nvrtc: error: invalid value for --gpu-architecture"),
            Sign(r"Torch not compiled with CUDA enabled", raised=True),
        ),
        stack_fault=True,
    ),
    Mode(
        "no-kernel-image",
        "A compiled package holds no code for this GPU (no kernel image). Install a build of it"
        " for this architecture.",
        Action.STOP,
        _CAPTURE,
        (Sign(r"no kernel image is available|cudaErrorNoKernelImageForDevice"),),
        stack_fault=True,
    ),
    Mode(
        "attention-backend-unsupported",
        "The attention backend doesn't support this GPU or model. Choose another one.",
        Action.PRUNE,
        _CAPTURE,
        (
            Sign(
                r"(?:Backend|backend) (?:requires|is only supported|only supports"
                r"|is not (?:yet )?supported|does not support|doesn't support|cannot be used"
                r"|can only be used)",
                unless=r"topk|page_size|speculative|grammar|disaggregation|LoRA|lora",
                raised=True,
            ),
            Sign(
                r"Only SM ?\d[.\w]*(?:(?:,| and| or)+ (?:SM ?)?\d[.\w]*)* (?:is|are)"
                r" supported",
                raised=True,
            ),
            Sign(
                r"(?:FlashAttention|FlashMLA|FA[34]|fa[34]|TRTLLM|trtllm_\w+|cutlass_mla|flashmla)\b"
                r".*(?:requires?|only supports?|is (?:only|not) supported|not available)",
                unless=r"topk|page_size|speculative",
                raised=True,
            ),
            Sign(
                r"(?:FlashAttention|flash_attn\S*) only supports (?:Ampere|\w+) GPUs", raised=True
            ),
            Sign(
                r"[Uu]nsupported (?:attention )?(?:backend|architecture)|[Ii]nvalid attention"
                r" backend|(?:Head size|head_dim|head dim\w*) \S+ is not supported by",
                raised=True,
            ),
        ),
        variants=(
            Variant(
                r"(?:[Pp]lease (?:use|set|try|switch to)|[Uu]se|try|consider) `?--"
                r"(?P<flag>attention-backend|prefill-attention-backend|decode-attention-backend)"
                r"[ =](?P<value>\w+)",
                Action.RETRY,
                Remedy(
                    "take the attention backend that the log names",
                    args={"{flag}": "{value}"},
                    alters=True,
                ),
                "The attention backend doesn't support this GPU or model. Take the one that the"
                " log names.",
            ),
        ),
        spread=Spread(decided_by=_BACKEND_FLAGS),
    ),
)
