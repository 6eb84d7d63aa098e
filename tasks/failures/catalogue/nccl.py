"""NCCL, shared memory between processes, and the custom all-reduce."""

from tasks.domain.diagnosis import Action, Cleanup, Need, Phase, Remedy, Requirement
from tasks.failures.catalogue.entry import Mode, Sign, Variant, Weight

_COMMUNICATION = (Phase.DISTRIBUTED, Phase.WEIGHTS, Phase.GRAPH_CAPTURE, Phase.SERVING)
_CAPTURE = (Phase.GRAPH_CAPTURE, Phase.WARMUP, Phase.SERVING)
_OFF = {"disable_custom_all_reduce": True}
_SHM = (
    r"/dev/shm|shared memory|nccl-shm|nccl-\w{6}|/psm_|/torch_\d+|/sem\.|SharedMemory|shm_open"
    r"|shm\.h"
)
_LEFTOVERS = r"leaked shared_memory|[Ll]eft ?over|[Ss]tale|[Oo]rphan|100% /dev/shm|crashed run"
_NO_SPACE = r"No space left on device"

MODES = (
    Mode(
        "nccl-nvls-bind-failed",
        "NCCL could not set up NVLink SHARP multicast. Set NCCL_NVLS_ENABLE=0, which costs"
        " bandwidth, or check the fabric manager and that containers share the GPUs' IMEX channel.",
        Action.RETRY,
        _COMMUNICATION,
        (
            Sign(
                r"Failed to (?:bind|create|map|import)\S* .*(?:NVLS|NVLink SHARP|[Mm]ulticast)",
            ),
            Sign(r"nvls\.cc.*NCCL WARN"),
            Sign(r"(?:CUDA|Cuda) (?:error|failure).*[Mm]ulticast|cuMulticast\w+.*fail"),
        ),
        Remedy("switch NVLink SHARP off", env={"NCCL_NVLS_ENABLE": "0"}, alters=True),
    ),
    Mode(
        "nccl-oom-buffers",
        "NCCL found no GPU memory left for its buffers. Lower --mem-fraction-static.",
        Action.RETRY,
        _COMMUNICATION,
        (
            Sign(r"Cuda failure (?:\d+ )?'?out of memory"),
            Sign(r"Failed to CUDA (?:calloc|malloc)"),
        ),
        Remedy("leave more memory to NCCL", scale_args={"mem_fraction_static": 0.93}),
    ),
    Mode(
        "shm-full-leaked-segments",
        "/dev/shm is full of what crashed runs left there. Remove the segments that no process has"
        " open.",
        Action.RETRY,
        _COMMUNICATION,
        (
            Sign(_NO_SPACE, near=rf"\A(?=[\s\S]*(?:{_SHM}))(?=[\s\S]*(?:{_LEFTOVERS}))"),
            Sign(
                r"Error while creating shared memory",
                near=_LEFTOVERS,
            ),
            Sign(r"FileExistsError: \[Errno 17\] File exists: '/(?:psm_|dev/shm/)"),
        ),
        Remedy(
            "remove our dead runs' shared memory",
            cleanup=(Cleanup.SHARED_MEMORY,),
            requires=(Requirement(Need.DEAD_SEGMENT),),
        ),
        check="the segments are ours and no process maps them",
    ),
    Mode(
        "shm-too-small",
        "/dev/shm is too small for NCCL and the processes' shared memory. Restart the container"
        " with a larger --shm-size, or with --ipc=host.",
        Action.STOP,
        _COMMUNICATION,
        (
            Sign(r"Error while creating shared memory segment|failed to extend /dev/shm"),
            Sign(
                _NO_SPACE
                + rf".*(?:{_SHM})|(?:{_SHM}).*"
                + _NO_SPACE
                + r"|posix_fallocate failed: "
                + _NO_SPACE
                + r"|NCCL WARN .*"
                + _NO_SPACE,
            ),
            Sign(
                r"insufficient shared memory|unable to (?:open|allocate) shared memory"
                r"|unable to (?:write to file|mmap \d+ bytes from file) </torch_",
            ),
            Sign(r"\bBus error\b"),
            Sign(r"(?:crashed with exit code|[Ee]xit code:?) \(?-7\b"),
        ),
        exit_codes=(-7, 135),
    ),
    Mode(
        "custom-allreduce-no-p2p",
        "These GPUs have no direct access to each other's memory, which the custom all-reduce"
        " needs. Add --disable-custom-all-reduce.",
        Action.RETRY,
        _CAPTURE,
        (
            Sign(
                r"peer access is not supported between|cudaErrorPeerAccess\w+",
                unless=r"Setup Custom allreduce failed|is disabled",
            ),
        ),
        Remedy("switch the custom all-reduce off", args=_OFF),
    ),
    Mode(
        "custom-allreduce-graph-register",
        "The custom all-reduce could not register its buffers for graph capture; the memory hints"
        " in the log mislead. Add --disable-custom-all-reduce, and take expandable_segments out of"
        " PYTORCH_CUDA_ALLOC_CONF.",
        Action.RETRY,
        _CAPTURE,
        (
            Sign(
                r"(?:RuntimeError|CUDA error|CUDART error|Error)\b.*(?:invalid argument"
                r"|invalid (?:resource|device) \w+|not supported)",
                near=r"register_graph_buffers|get_graph_buffer_ipc_meta|share_graph_inputs",
            ),
            Sign(r"register_graph_buffers.*(?:invalid|fail)"),
        ),
        Remedy("switch the custom all-reduce off", args=_OFF, alters=True),
    ),
    Mode(
        "custom-allreduce-crash",
        "The custom all-reduce crashed. Add --disable-custom-all-reduce, which costs some speed at"
        " small batches.",
        Action.RETRY,
        _CAPTURE,
        (
            Sign(r"Failed: Cuda error \S*custom_all_reduce\.cuh"),
            Sign(r"custom_all_?reduce\w*\.(?:cuh?|hpp|h)\b.*", raised=True),
            Sign(
                r"(?:RuntimeError|AcceleratorError): (?:CUDA|CUDART) error: (?:invalid"
                r" (?:argument|resource handle|device pointer)|an illegal memory access)",
                near=r"custom_all_?reduce\w*\.py\", line \d+, in \w+\n(?:.*\n){0,3}?.*Error",
            ),
            Sign(
                r"Segmentation fault",
                near=r"custom_all_?reduce\w*\.(?:py|cuh?)\b|in custom_all_reduce",
            ),
        ),
        Remedy("switch the custom all-reduce off", args=_OFF, alters=True),
    ),
    Mode(
        "dist-timeout",
        "A rank waited longer for the others than torch allows (not SGLang's watchdog). Raise"
        " --dist-timeout.",
        Action.RETRY,
        _COMMUNICATION,
        (
            # Tens of thousands of collectives went well before: the ranks are joined and one is
            # merely slow, so that time helps where a broken connection would need something else.
            Sign(
                r"Watchdog caught collective operation timeout:"
                r" WorkNCCL\(SeqNum=\d{5,}",
                weight=Weight.SYMPTOM,
            ),
            Sign(
                r"Timed out (?:after \d+ seconds )?waiting (?:\d+ms )?for (?:clients"
                r"|recv|send|\w+ operation)|Socket Timeout|wait timeout after \d+ms",
                weight=Weight.SYMPTOM,
            ),
            Sign(
                r"DistStoreError|DistNetworkError.*timed out|Wait timeout|Socket Timeout"
                r"|wait timeout after \d+ms",
                weight=Weight.SYMPTOM,
                raised=True,
            ),
        ),
        Remedy("allow ranks an hour for each other", args={"dist_timeout": 3600}),
    ),
    Mode(
        "nccl-collective-timeout",
        "One rank waited ten minutes for another; the silent rank is the cause. If it comes"
        " back, look at that rank's GPU and link (dmesg, NCCL_DEBUG=INFO).",
        Action.RETRY,
        _COMMUNICATION,
        (
            Sign(
                r"Watchdog caught collective operation timeout",
                weight=Weight.SYMPTOM,
            ),
            Sign(
                r"(?:NCCL|collective|allreduce|all_reduce)\b.*timed out",
                weight=Weight.SYMPTOM,
            ),
        ),
        Remedy("try once more", wait_s=10.0),
    ),
    Mode(
        "nccl-unhandled-cuda-error",
        "A CUDA call inside NCCL failed and the log doesn't say which. Launch by hand with"
        " NCCL_DEBUG=INFO and read its NCCL WARN line.",
        Action.STOP,
        _COMMUNICATION,
        (Sign(r"unhandled cuda error|ncclUnhandledCudaError", weight=Weight.SYMPTOM),),
    ),
    Mode(
        "nccl-unhandled-system-error",
        "A system call inside NCCL failed (network, shared memory, permissions) and the log"
        " doesn't say which. Launch by hand with NCCL_DEBUG=INFO and read its NCCL WARN line.",
        Action.STOP,
        _COMMUNICATION,
        (
            Sign(r"unhandled system error|ncclSystemError", weight=Weight.SYMPTOM),
            Sign(r"Gloo connectFullMesh failed", weight=Weight.SYMPTOM),
        ),
        variants=(
            Variant(
                "",
                Action.STOP,
                explanation="The ranks can't reach each other over the network interface that gloo"
                " took. Name the right one in GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, in the"
                " host's env.",
                line=r"Gloo connectFullMesh",
            ),
        ),
    ),
    Mode(
        "hang-nccl-init",
        "The launch hung while the ranks joined, without a word. Check NCCL_SOCKET_IFNAME, the"
        " firewall, ACS and IOMMU settings, and that every rank started.",
        Action.STOP,
        (Phase.DISTRIBUTED,),
        stalls=(Phase.DISTRIBUTED,),
        ends=r"Init (?:torch distributed|parallel) begin",
    ),
)
