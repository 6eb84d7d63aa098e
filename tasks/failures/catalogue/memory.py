"""GPU memory and graph capture."""

from collections.abc import Mapping

from tasks.domain.diagnosis import Action, Cleanup, Phase, Remedy
from tasks.failures.catalogue.entry import Mode, Sign, Spread, Variant, Weight
from tasks.failures.text import regex

_OOM = r"CUDA out of memory|CUDA error: out of memory|OutOfMemoryError|HIP out of memory"
_KV = r"Not enough memory\. Please try to increase --mem-fraction-static"
_CAPTURE_OOM = r"[Cc]apture (?:\w+ )?cuda graph failed: (?:CUDA )?(?:error: )?out of memory"
_CAPTURING = (
    r"[Cc]apture (?:\w+ )?cuda graph failed|capture_one_batch_size|in init_(?:device|cuda)_graphs"
    r"|Fail when using backend: .* runner|_dummy_run|in capture\n|warming up (?:the )?sampler"
)
_SERVING = (
    r"event_loop_\w+|in run_batch\b|\bDecode batch|\"POST /(?:generate|v1/)\S* HTTP/[\d.]+\" 200"
    r"|in forward_batch_generation"
)
_LOADING = (
    r"\bin (?:load_model|load_weights\w*|_initialize_model|initialize_model|weight_loader"
    r"|create_weights|process_weights_after_loading)\b"
)
_KV_POOL = r"\bin (?:init_memory_pool|_create_buffers|_init_pools)\b|TokenToKVPool"
_GRAPHS = ("cuda_graph_max_bs", "cuda_graph_max_bs_decode", "cuda_graph_max_bs_prefill")
_LARGER_GRAPHS = (*_GRAPHS, "mem_fraction_static", "max_running_requests")
_AFTER_WEIGHTS = (
    *_GRAPHS,
    *("disable_cuda_graph", "mem_fraction_static", "max_running_requests", "max_total_tokens"),
    *("chunked_prefill_size", "max_prefill_tokens", "schedule_policy", "schedule_conservativeness"),
    *("disable_radix_cache", "num_continuous_decode_steps", "stream_interval", "context_length"),
)
_STRANGERS_GIB = 2.0
_LOWER = Remedy("lower the memory fraction", scale_args={"mem_fraction_static": 0.93})


def _strangers_hold(groups: Mapping[str, str]) -> bool:
    """Tell whether other processes hold much of the GPU, by torch's own account of it.

    Inside a container torch can't tell its own process from others and calls it `Process N` too:
    what PyTorch itself holds is then in that figure.
    """
    message = groups["message"]
    others = [float(gib) for gib in regex(r"Process \d+ has ([\d.]+) GiB").findall(message)]
    ours = [
        float(gib) for gib in regex(r"([\d.]+) GiB (?:is allocated|is reserved)").findall(message)
    ]
    if others and ours and "this process has" not in message:
        others = sorted(others, key=lambda gib: abs(gib - sum(ours)))
        others = others[1:] if sum(ours) <= others[0] <= 1.25 * sum(ours) + 2.0 else others
    return sum(others) > _STRANGERS_GIB


MODES = (
    Mode(
        "stale-processes",
        "A process of an earlier run still holds GPU memory or the port. End it, or take"
        " another port.",
        Action.RETRY,
        (Phase.WEIGHTS, Phase.KV_CACHE, Phase.SERVING),
        (
            Sign(rf"(?:{_OOM})(?P<message>.*)", holds=_strangers_hold),
            Sign(r"Free memory on device .* is less than desired GPU memory utilization"),
            Sign(r"(?i)(?:read ?timeout|timed out).*\b0 tokens", weight=Weight.SYMPTOM),
        ),
        Remedy(
            "free the GPUs and take another port",
            cleanup=(Cleanup.GPUS, Cleanup.PORT),
            another_port=True,
        ),
        check="the holders are ours, or the host is dedicated",
    ),
    Mode(
        "oom-no-feasible-memfrac",
        "A lower memory fraction leaves no room for the KV cache and a higher one runs out of"
        " memory: no value fits. Use more GPUs, a smaller model or a shorter context.",
        Action.PRUNE,
        (Phase.KV_CACHE,),
        (
            Sign(_KV, near=_OOM),
            Sign(_OOM, near=_KV),
            Sign(_KV + r".*mem_fraction_static=0?\.9[5-9]"),
        ),
        spread=Spread(larger=_GRAPHS, free=("mem_fraction_static",)),
    ),
    Mode(
        "kv-alloc-not-enough-memory",
        "The weights leave no room for the KV cache under this memory fraction. Raise it; if"
        " the weights themselves fill the GPU, use more GPUs or quantization.",
        Action.RETRY,
        (Phase.KV_CACHE,),
        (
            Sign(_KV),
            Sign(
                r"No available memory for the cache blocks|larger than the maximum number of"
                r" tokens that can be stored in KV cache",
            ),
        ),
        Remedy("raise the memory fraction", scale_args={"mem_fraction_static": 1.08}),
        variants=(
            Variant(
                r"the profiled value -\d",
                Action.PRUNE,
                explanation="The weights fill the GPU so far that no memory fraction leaves room"
                " for the KV cache. Use more GPUs or quantization.",
            ),
        ),
        spread=Spread(smaller=("mem_fraction_static",)),
    ),
    Mode(
        "oom-cuda-graph-capture",
        "Out of GPU memory while capturing CUDA graphs. Lower --mem-fraction-static or"
        " --cuda-graph-max-bs.",
        Action.PRUNE,
        (Phase.GRAPH_CAPTURE,),
        (
            Sign(_CAPTURE_OOM),
            Sign(_OOM, near=_CAPTURE_OOM),
            Sign(
                rf"(?:{_OOM}|Cuda failure.*out of memory)",
                near=_CAPTURING,
                away=_SERVING,
                phases=(Phase.GRAPH_CAPTURE,),
            ),
        ),
        variants=(
            Variant(
                r"set --mem-fraction-static to a smaller value|Possible solutions|"
                r"--cuda-graph-max-bs\S* to a smaller|Capture cuda graph begin[\s\S]*avail mem",
                Action.RETRY,
                _LOWER,
                "Out of GPU memory while capturing CUDA graphs. Lower --mem-fraction-static or"
                " --cuda-graph-max-bs.",
            ),
        ),
        spread=Spread(larger=_LARGER_GRAPHS),
    ),
    Mode(
        "oom-serving",
        "Out of GPU memory under load. Lower --mem-fraction-static or --chunked-prefill-size.",
        Action.RETRY,
        (Phase.SERVING, Phase.WARMUP),
        (
            Sign(_OOM, near=_SERVING, phases=(Phase.SERVING,)),
            Sign(
                r"CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)",
                near=r"avail(?:able_gpu)?[ _]mem=0\.[0-4]\d* GB",
            ),
            Sign(r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)"),
            Sign(r"(?:Prefill|Decode) out of memory|KV cache pool is full", unless=r"[Rr]etract"),
        ),
        _LOWER,
        spread=Spread(larger=("mem_fraction_static", "chunked_prefill_size")),
    ),
    Mode(
        "oom-kv-cache",
        "Out of GPU memory while the KV cache was allocated: the memory fraction promises more"
        " than is free. Lower it.",
        Action.RETRY,
        (Phase.KV_CACHE,),
        (Sign(_OOM, near=_KV_POOL, phases=(Phase.KV_CACHE,), away=_LOADING),),
        _LOWER,
        spread=Spread(larger=("mem_fraction_static", "max_total_tokens")),
    ),
    Mode(
        "oom-weight-load",
        "The weights don't fit on the GPUs; no memory fraction helps. Use more GPUs (a larger"
        " --tp), quantization or CPU offload.",
        Action.PRUNE,
        (Phase.WEIGHTS,),
        (Sign(_OOM), Sign(r"hipErrorOutOfMemory")),
        spread=Spread(free=_AFTER_WEIGHTS),
    ),
    Mode(
        "graph-capture-other",
        "CUDA graph capture failed, and not for lack of memory whatever the hints say. Leave the"
        " option that breaks it out (often --enable-torch-compile), or --disable-cuda-graph.",
        Action.PRUNE,
        (Phase.GRAPH_CAPTURE,),
        (
            Sign(
                r"[Cc]apture (?:\w+ )?cuda graph failed(?!: CUDA out of memory)",
                weight=Weight.SYMPTOM,
            ),
            Sign(
                r"operation not permitted when stream is capturing|operation failed due to a"
                r" previous error during capture|cudaErrorStreamCapture\w+"
                r"|[Cc]annot .* during (?:CUDA )?graph capture",
                weight=Weight.SYMPTOM,
            ),
            Sign(r"Fail when using backend: .* for \w+ runner", weight=Weight.SYMPTOM),
        ),
    ),
)
