"""cuDNN: version checks, and libraries that don't belong together."""

from tasks.domain.diagnosis import Action, Phase, Remedy
from tasks.failures.catalogue.entry import Mode, Sign, Weight

_CONV3D = "PyTorch 2.9.1 & CuDNN Compatibility Issue"
_OFFER = r"SGLANG_DISABLE_CUDNN_CHECK"
_RUNNING = (Phase.WARMUP, Phase.SERVING, Phase.GRAPH_CAPTURE, Phase.WEIGHTS)

MODES = (
    Mode(
        "cudnn-conv3d-check",
        "SGLang refuses torch 2.9.1 with a cuDNN older than 9.15. Install cuDNN 9.16, or set"
        " SGLANG_DISABLE_CUDNN_CHECK=1: vision (Conv3d) workloads stay slow then.",
        Action.RETRY,
        (Phase.START,),
        (Sign(r"CRITICAL WARNING: " + _CONV3D, near=_OFFER),),
        Remedy("switch the cuDNN check off", env={"SGLANG_DISABLE_CUDNN_CHECK": "1"}),
    ),
    Mode(
        "cudnn-conv3d-check-no-bypass",
        "SGLang refuses torch 2.9.1 with a cuDNN older than 9.15, and this version offers no way"
        " round. Install cuDNN 9.16 or newer for torch's own CUDA major.",
        Action.STOP,
        (Phase.START,),
        (Sign(r"CRITICAL WARNING: " + _CONV3D, away=_OFFER),),
        stack_fault=True,
    ),
    Mode(
        "cudnn-not-initialized",
        "cuDNN could not start: its library and torch come from different CUDA builds."
        " Install torch and cuDNN of one CUDA version.",
        Action.STOP,
        _RUNNING,
        (
            Sign(
                r"CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR\b.*)",
                unless=r"SUBLIBRARY",
                away=r"avail(?:able_gpu)?[ _]mem=0\.[0-4]\d* GB",
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "cudnn-sublibrary-mismatch",
        "cuDNN's own parts have different versions: its wheel is incomplete, or two are mixed."
        " Reinstall one whole nvidia-cudnn wheel.",
        Action.STOP,
        _RUNNING,
        (
            Sign(r"CUDNN_STATUS_SUBLIBRARY_(?:VERSION_MISMATCH|LOADING_FAILED)"),
            Sign(
                r"(?:Could not|Unable to|Cannot) load (?:library|any of \{)\W*libcudnn\w*"
                r"|Invalid handle\. Cannot load symbol cudnn",
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "cudnn-version-incompatible",
        "torch found an older cuDNN than the one it was built for: a second cuDNN package, or a"
        " folder on LD_LIBRARY_PATH, hides the bundled one. Remove it.",
        Action.STOP,
        (Phase.START, Phase.WEIGHTS, Phase.WARMUP),
        (Sign(r"cuDNN version incompatibility"),),
        stack_fault=True,
    ),
    Mode(
        "cudnn-error",
        "A cuDNN call failed. Look at the operation above it in the traceback.",
        Action.STOP,
        _RUNNING,
        (
            Sign(
                r"RuntimeError: cuDNN error: CUDNN_STATUS_(?!NOT_INITIALIZED|SUBLIBRARY|INTERNAL)",
                weight=Weight.SYMPTOM,
            ),
        ),
        stack_fault=True,
    ),
)
