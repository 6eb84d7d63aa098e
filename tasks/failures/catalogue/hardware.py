"""The driver, the GPUs themselves, and kernels that go astray."""

from tasks.domain.diagnosis import Action, Phase, Remedy
from tasks.failures.catalogue.entry import Mode, Sign, Spread, Weight

_START = (Phase.START, Phase.WEIGHTS)
_RUNNING = (Phase.SERVING, Phase.GRAPH_CAPTURE, Phase.WARMUP)

MODES = (
    Mode(
        "gpu-hardware-fault",
        "A GPU failed (off the bus, uncorrectable memory, or not answering). Take the host out and"
        " have a person look at power, cooling and dmesg.",
        Action.STOP,
        (Phase.SERVING,),
        (
            Sign(r"fallen off the bus"),
            Sign(
                r"Xid \([^)]*\): (?:46|48|54|56|57|58|61|62|63|64|74|79|92|9[45]|1[0-4]\d)\b",
            ),
            Sign(
                r"[Uu]ncorrectable (?:ECC|NVLink|memory)|ECC error encountered"
                r"|cudaErrorECCUncorrectable|hardware stack error|GPU is lost|GPU has been lost"
                r"|NVML(?:Error)?\S* ?:?.*(?:GPU is lost|Unknown Error)"
                r"|Unable to determine the device handle for GPU|NVLink error was detected",
            ),
            Sign(r"Unable to determine the device handle for GPU|GPU requires reset"),
        ),
    ),
    Mode(
        "fabric-manager-not-ready",
        "The NVSwitch fabric isn't up (error 802). Start nvidia-fabricmanager in the driver's"
        " version; right after a boot, wait two minutes.",
        Action.STOP,
        _START,
        (
            Sign(r"Error 802|system not yet initialized|cudaErrorSystemNotReady", weak=True),
            Sign(r"system not yet initialized|[Ff]abric ?[Mm]anager"),
        ),
    ),
    Mode(
        "driver-too-old",
        "The NVIDIA driver is older than this stack's CUDA, or an injected library brought another"
        " runtime. Update the driver, or take a stack of an older CUDA.",
        Action.STOP,
        _START,
        (
            Sign(
                r"Error 80[34]\b|forward compatibility was attempted|unsupported display driver"
                r"|NVIDIA driver on your system is too old|compiled with an unsupported toolchain"
                r"|CUDA driver version is insufficient|cudaErrorInsufficientDriver",
                weak=True,
            ),
            Sign(r"CUDA driver version is insufficient for CUDA runtime"),
        ),
        stack_fault=True,
    ),
    Mode(
        "too-few-gpus",
        "More GPUs are asked for than this host has or CUDA_VISIBLE_DEVICES shows. Lower --tp, or"
        " show more of them.",
        Action.PRUNE,
        (Phase.DISTRIBUTED,),
        (
            Sign(r"CUDA error: invalid device ordinal|cudaErrorInvalidDevice\b"),
            Sign(r"GPU device may be out of range", weight=Weight.SYMPTOM),
        ),
        spread=Spread(larger=("tp", "tp_size", "tensor_parallel_size")),
    ),
    Mode(
        "illegal-memory-access",
        "A kernel accessed memory that isn't its own. If it comes back, this combination of"
        " options has a bug.",
        Action.RETRY,
        _RUNNING,
        (
            Sign(
                r"illegal memory access|cudaErrorIllegalAddress|CUDA error: misaligned address"
                r"|CUDA_ERROR_ILLEGAL_ADDRESS",
            ),
        ),
        Remedy("try once more", wait_s=5.0),
    ),
    Mode(
        "device-side-assert",
        "A kernel's own check failed on the GPU (an index out of range, or NaN probabilities)."
        " This configuration computes something wrong: leave it out.",
        Action.PRUNE,
        _RUNNING,
        (
            Sign(r"device-side assert triggered|cudaErrorAssert", weight=Weight.SYMPTOM),
            Sign(
                r"\.cuh?:\d+: .*block: \[.*thread: \[.*Assertion `.*` failed",
                weight=Weight.SYMPTOM,
            ),
        ),
    ),
    Mode(
        "cuda-error",
        "A CUDA call failed. The evidence names it; the kernel log (dmesg) may say more.",
        Action.STOP,
        _RUNNING,
        (
            Sign(
                r"(?:RuntimeError|AcceleratorError): CUDA error: (?:unspecified launch failure"
                r"|unknown error|device kernel image is invalid|the launch timed out)",
                weight=Weight.SYMPTOM,
            ),
        ),
    ),
)
