"""What SGLang and what it stands on print when something goes wrong: literal texts."""

SITE = "/opt/ml-env/lib/python3.11/site-packages"

CUDNN = """\x1b[91m\x1b[1mCRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected
--------------------------------------------------------------------------------
Current Environment: PyTorch {torch} | CuDNN 9.10

Issue:     There is a KNOWN BUG in PyTorch 2.9.1's `nn.Conv3d` implementation
           when used with CuDNN versions older than 9.15. This can cause
           SEVERE PERFORMANCE DEGRADATION and EXCESSIVE MEMORY USAGE.

Reference: https://github.com/pytorch/pytorch/issues/168167

Solution:  You MUST upgrade CuDNN to version 9.15+ to ensure correctness.

Run the following command immediately to fix:
    pip install nvidia-cudnn-cu12==9.16.0.29

Or you can disable this check by setting env var SGLANG_DISABLE_CUDNN_CHECK=1
--------------------------------------------------------------------------------
\x1b[0m"""

ABI_SYMBOL = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
COMMON_OPS = """
[sgl_kernel] CRITICAL: Could not load any common_ops library!

Attempted locations:
1. Architecture-specific pattern: {site}/sgl_kernel/sm100/common_ops.* - found files: \
['{site}/sgl_kernel/sm100/common_ops.abi3.so']
2. Fallback pattern: {site}/sgl_kernel/common_ops.* - found files: []
3. Standard Python import: common_ops - failed

GPU Info:
- Compute capability: 120
- Expected variant: SM120 (precise math for compatibility)

Please ensure sgl_kernel is properly installed with:
pip install --upgrade sgl_kernel

Error details from previous import attempts:
- ImportError: {site}/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: {symbol}
- ModuleNotFoundError: No module named 'common_ops'"""

GRAPH_HINTS = """Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs to a smaller value (e.g., 16)
3. disable torch compile by not using --enable-torch-compile
4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"""

ASYNC_HINT = """CUDA kernel errors might be asynchronously reported at some other API call, so the \
stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""

SIGQUIT = "Received sigquit from a child process. It usually means the child failed."
READY = "The server is fired up and ready to roll!"

Frame = tuple[str, int, str, str]  # file below site-packages, line, function, source line

SCHEDULER_FRAMES: tuple[Frame, ...] = (
    ("sglang/srt/managers/scheduler.py", 3130, "run_scheduler_process", "scheduler = Scheduler("),
    ("sglang/srt/managers/scheduler.py", 368, "__init__", "self.init_model_worker()"),
    ("sglang/srt/managers/scheduler.py", 564, "init_model_worker", "self.init_tp_model_worker()"),
    ("sglang/srt/managers/tp_worker.py", 247, "__init__", "self._init_model_runner()"),
    ("sglang/srt/model_executor/model_runner.py", 413, "__init__", "self.initialize("),
)
SERVING_FRAMES: tuple[Frame, ...] = (
    ("sglang/srt/managers/scheduler.py", 3154, "run_scheduler_process", "scheduler.event_loop()"),
    ("sglang/srt/managers/scheduler.py", 1113, "event_loop_overlap", "self.process_batch_result("),
    (
        "sglang/srt/managers/tp_worker.py",
        412,
        "resolve_last_batch_result",
        "copy_done.synchronize()",
    ),
)
LAUNCH_FRAMES: tuple[Frame, ...] = (
    ("sglang/launch_server.py", 32, "<module>", "server_args = prepare_server_args(sys.argv[1:])"),
)


def traceback(frames: tuple[Frame, ...], error: str) -> str:
    """Return a Python traceback with these frames, ending in `error`."""
    lines = ["Traceback (most recent call last):"]
    for file, number, function, source in frames:
        lines.append(f'  File "{SITE}/{file}", line {number}, in {function}')
        lines.append(f"    {source}")
    return "\n".join([*lines, error]) + "\n"


def cudnn(stack: str) -> str:
    frames = (
        *LAUNCH_FRAMES,
        ("sglang/srt/server_args.py", 4975, "check_torch_2_9_1_cudnn_compatibility",
         "raise RuntimeError(msg)"),
    )  # fmt: skip
    return traceback(frames, "RuntimeError: " + CUDNN.format(torch=f"2.9.1+{stack or 'cu130'}"))


def undefined_symbol(site: str = SITE) -> str:
    """Return the message of the ImportError of an sgl_kernel built against another torch."""
    return COMMON_OPS.format(site=site, symbol=ABI_SYMBOL)


def import_failure() -> str:
    frames = (
        ("sglang/launch_server.py", 6, "<module>", "from sglang.srt.server_args import ServerArgs"),
        ("sglang/srt/layers/quantization/fp8_kernel.py", 41, "<module>", "import sgl_kernel"),
        ("sgl_kernel/load_utils.py", 188, "_load_architecture_specific_ops",
         "raise ImportError(error_msg)"),
    )  # fmt: skip
    return traceback(frames, "ImportError: " + undefined_symbol())


def model_missing(path: str) -> str:
    frames = (
        *LAUNCH_FRAMES,
        ("sglang/srt/configs/model_config.py", 127, "__init__", "self.hf_config = get_config("),
        ("sglang/srt/utils/hf_transformers_utils.py", 315, "get_config",
         "config = AutoConfig.from_pretrained("),
        ("transformers/configuration_utils.py", 744, "_get_config_dict", "raise OSError("),
    )  # fmt: skip
    return traceback(
        frames,
        f"OSError: Can't load the configuration of '{path}'. If you were trying to load it from "
        f"'https://huggingface.co/models', make sure you don't have a local directory with the "
        f"same name. Otherwise, make sure '{path}' is the correct path to a directory containing "
        f"a config.json file",
    )


def _size(mib: float) -> str:
    return f"{mib:.2f} MiB" if mib < 1024 else f"{mib / 1024:.2f} GiB"


def out_of_memory(
    gpu: int, total_mib: float, tried_mib: float, owner: tuple[int, float] | None
) -> str:
    """Return torch's message; `owner` is another process and the MiB it uses on that GPU."""
    text = (
        f"CUDA out of memory. Tried to allocate {_size(tried_mib)}. GPU {gpu} has a total capacity "
        f"of {_size(total_mib)} of which {_size(min(tried_mib * 0.55, 1126))} is free. "
    )
    if owner:
        text += f"Process {owner[0]} has {_size(owner[1])} memory in use. "
    return (
        text
        + "Of the allocated memory 83.95 GiB is allocated by PyTorch, and 1.65 GiB is reserved "
        "by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def capture_failed(gpu: int, total_mib: float) -> str:
    frames = (
        *SCHEDULER_FRAMES,
        ("sglang/srt/model_executor/cuda_graph_runner.py", 382, "__init__", "raise Exception("),
    )
    reason = out_of_memory(gpu, total_mib, 2048, None)
    return traceback(frames, f"Exception: Capture cuda graph failed: {reason}\n{GRAPH_HINTS}")


def weights_out_of_memory(gpu: int, total_mib: float, owner: tuple[int, float] | None) -> str:
    frames = (
        *SCHEDULER_FRAMES,
        ("sglang/srt/model_executor/model_runner.py", 566, "initialize", "self.load_model()"),
        ("sglang/srt/model_loader/loader.py", 512, "load_model", "model = _initialize_model("),
    )  # fmt: skip
    tried = 2027.5 if owner else 20.0
    return traceback(
        frames, "torch.OutOfMemoryError: " + out_of_memory(gpu, total_mib, tried, owner)
    )


def unbalanced(least_gb: float, local_gb: float) -> str:
    frames = (
        *SCHEDULER_FRAMES,
        ("sglang/srt/model_executor/model_runner.py", 755, "init_torch_distributed",
         "raise RuntimeError(msg)"),
    )  # fmt: skip
    return traceback(
        frames,
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
        f"processes. min_per_gpu_memory={least_gb}, local_gpu_memory={local_gb}, "
        f"local_gpu_memory * 0.9={local_gb * 0.9:.2f}",
    )


def not_enough_memory(fraction: float) -> str:
    frames = (
        *SCHEDULER_FRAMES,
        ("sglang/srt/model_executor/model_runner.py", 590, "initialize", "self.init_memory_pool("),
        ("sglang/srt/model_executor/model_runner_kv_cache_mixin.py", 416, "init_memory_pool",
         "raise RuntimeError("),
    )  # fmt: skip
    return traceback(
        frames,
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        f"value: self.server_args.mem_fraction_static={fraction}",
    )


def bad_ordinal() -> str:
    frames = (
        *SCHEDULER_FRAMES,
        ("sglang/srt/model_executor/model_runner.py", 702, "init_torch_distributed",
         "torch.get_device_module(self.device).set_device(self.gpu_id)"),
    )  # fmt: skip
    return traceback(
        frames,
        "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
        "GPU device may be out of range, do you have enough GPUs?\n" + ASYNC_HINT,
    )


def illegal_access() -> str:
    error = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    return traceback(SERVING_FRAMES, error + ASYNC_HINT)


def peer_gone(address: str) -> str:
    """Return what a node's scheduler raises when another node has gone: an echo, not the cause."""
    frames = (
        SERVING_FRAMES[0],
        ("sglang/srt/managers/scheduler.py", 1108, "event_loop_overlap",
         "recv_reqs = self.recv_requests()"),
        ("sglang/srt/utils/common.py", 1310, "broadcast_pyobj", "dist.broadcast("),
    )  # fmt: skip
    error = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] "
    return traceback(frames, f"{error}Connection closed by peer {address}")


def watchdog_echo(rank: int) -> str:
    """Return what NCCL's watchdog prints after an illegal access: an echo, not the cause."""
    return (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  [PG ID 2 PG GUID 3 Rank {rank}] Process group watchdog thread terminated with "
        "exception: CUDA error: an illegal memory access was encountered\n"
        "Exception raised from c10_cuda_check_implementation at "
        "/pytorch/c10/cuda/CUDAException.cpp:43 (most recent call first):\n"
        "frame #2: c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, int, "
        "bool) + 0x118\n"
        "frame #3: c10d::ProcessGroupNCCL::WorkNCCL::finishedGPUExecutionInternal() const + 0x56\n"
    )


def scheduler_dead(rank: int, code: int) -> tuple[str, str, str]:
    """Return the two log lines and the traceback of a scheduler that died while starting."""
    return (
        f"Rank {rank} scheduler is dead. Please check if there are relevant logs.",
        f"Exit code: {code}",
        traceback(
            (
                ("sglang/launch_server.py", 34, "<module>", "run_server(server_args)"),
                ("sglang/srt/entrypoints/engine.py", 1019, "_wait_for_scheduler_ready",
                 "data = scheduler_pipe_readers[i].recv()"),
            ),
            "EOFError",
        ),
    )  # fmt: skip
