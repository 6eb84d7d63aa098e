"""Kernels built on the spot: flashinfer, nvcc, DeepGEMM, their caches and locks."""

from tasks.domain.diagnosis import Action, Cleanup, Need, Phase, Remedy, Requirement
from tasks.failures.catalogue.entry import Mode, Sign, Variant, Weight

_BUILD = (Phase.GRAPH_CAPTURE, Phase.WARMUP, Phase.START)
_START = (Phase.START,)
_BUILDING = (
    r"[Nn]inja|Building extension|JIT (?:Pre-)?Compil|Loading JIT|Compiling|nvcc|DeepGEMM warmup"
)
_TOOLKIT_HEADER = r"(?:curand|cublas|cusparse|cusolver|cufft|nvrtc|nvtx|nvToolsExt|cudnn|nvJitLink)"
_STILL_BUILDING = rf"(?:{_BUILDING})(?![\s\S]*(?:fired up and ready|Uvicorn running|100%))"
_NOT_READY = (
    r"Server failed to start within|[Ss]erver (?:did not|didn't|not) (?:become |get )?ready"
    r"|not ready (?:after|within)|[Tt]imed? ?out(?: after [\d.]+ ?s\w*)? waiting for (?:the )?"
    r"(?:server|health)|[Hh]ealth check (?:timed? ?out|failed after)"
)
_FLASHINFER_PAIR = r"version \(v?(\d+\.\d+)\.[^)]*\) does not match flashinfer version \("

MODES = (
    Mode(
        "cuda-home-malformed",
        "CUDA_HOME is malformed (a leading colon, a list of folders, or .../bin), so nvcc isn't"
        " found where it is. Set it to the toolkit's folder.",
        Action.RETRY,
        _BUILD,
        (
            Sign(r"(?:^|[\s:'\"]):(?P<home>/[^\s:]+)/bin/nvcc['\"]?: not found"),
            Sign(r"/[^\s:]+:(?P<home>/[^\s:]+)/bin/nvcc['\"]?: not found"),
            Sign(r"(?P<home>/[^\s:'\"]+)/bin/bin/nvcc"),
            Sign(
                r"(?:No such file or directory|FileNotFound\w+).*['\"]:?(?:/[^\s:]+)?:"
                r"(?P<home>/[^\s:]+)/bin/nvcc",
            ),
        ),
        Remedy(
            "set CUDA_HOME to the toolkit's folder",
            env={"CUDA_HOME": "{home}"},
            requires=(Requirement(Need.PROGRAM, "{home}/bin/nvcc"),),
        ),
        check="{home}/bin/nvcc exists",
    ),
    Mode(
        "nvcc-not-found",
        "A kernel must be compiled and no nvcc is there. Install the CUDA toolkit, or the"
        " flashinfer-jit-cache package so that nothing needs compiling.",
        Action.STOP,
        _BUILD,
        (
            Sign(
                r"Could not find nvcc|nvcc: (?:command )?not found"
                r"|No such file or directory: '[^']*nvcc'",
            ),
            Sign(r"CUDA_HOME environment variable is not set", raised=True),
            Sign(
                r"Could not find a CUDA installation|Unable to find CUDA toolkit"
                r"|CUDA_HOME (?:is not set|not found)",
                raised=True,
            ),
        ),
        variants=(
            Variant(
                r"default cuda_home='[^']*' doesn't exist|/usr/local/cuda/bin/nvcc: not found"
                r"|No such file or directory: '/\S*nvcc'|/nvcc: (?:No such file|not found)",
                Action.STOP,
            ),
            Variant(
                r"Could not find nvcc|nvcc: (?:command )?not found|directory: 'nvcc'|CUDA_HOME",
                Action.RETRY,
                Remedy(
                    "point CUDA_HOME at the usual place",
                    env={"CUDA_HOME": "/usr/local/cuda"},
                    requires=(Requirement(Need.PROGRAM, "/usr/local/cuda/bin/nvcc"),),
                ),
                "A kernel must be compiled and nvcc isn't on the server's path. Set CUDA_HOME to"
                " the toolkit, /usr/local/cuda as a rule.",
            ),
        ),
        check="/usr/local/cuda/bin/nvcc exists",
    ),
    Mode(
        "deepgemm-jit-failed",
        "DeepGEMM could not compile a kernel: the CUDA toolkit is too old for this GPU. Point"
        " CUDA_HOME at a newer one, or set SGLANG_ENABLE_JIT_DEEPGEMM=0 in the server's env.",
        Action.STOP,
        (Phase.WARMUP, Phase.GRAPH_CAPTURE),
        (
            Sign(r"NVCC compilation failed"),
            Sign(
                r"(?:NVRTC|Failed) compil\w+.*|NVRTC compilation failed",
                near=r"deep_gemm|DeepGEMM",
            ),
            Sign(
                r"nvcc fatal\s+:",
                near=r"deep_gemm|DeepGEMM",
                away=r"Ninja build failed|ninja: build stopped",
            ),
            Sign(r"Assertion error \(\S*(?:deep_gemm|jit_kernels|jit/)\S*\)"),
        ),
        stack_fault=True,
    ),
    Mode(
        "flashinfer-jit-header-missing",
        "flashinfer's compiler misses a CUDA header that pip ships in a folder of its own. Name"
        " that folder in FLASHINFER_EXTRA_CUDAFLAGS, or install flashinfer-jit-cache.",
        Action.RETRY,
        _BUILD,
        (
            Sign(
                rf"fatal error: (?P<header>{_TOOLKIT_HEADER}\w*\.h(?:pp)?):",
                near=r"(?P<site_packages>/[\w./@+-]+?/(?:site|dist)-packages)/",
            ),
        ),
        Remedy("show flashinfer's compiler where pip put the CUDA headers"),
        variants=(
            Variant(
                r"(?P<site_packages>/[\w./@+-]+?/(?:site|dist)-packages)/",
                Action.RETRY,
                Remedy(
                    "show flashinfer's compiler where pip put the CUDA headers",
                    env={
                        "FLASHINFER_EXTRA_CUDAFLAGS": "-I{site_packages}/nvidia/cu13/include"
                        " -I{site_packages}/nvidia/curand/include"
                        " -I{site_packages}/nvidia/cublas/include"
                    },
                    requires=(Requirement(Need.FILE, "{site_packages}/nvidia/*/include/{header}"),),
                ),
            ),
        ),
        check="one of these folders holds the header",
        stack_fault=True,
    ),
    Mode(
        "flashinfer-jit-build-failed",
        "flashinfer could not compile a kernel; the compiler's own line is in the evidence. Most"
        " often the CUDA toolkit is too old: point CUDA_HOME at a newer one.",
        Action.STOP,
        _BUILD,
        (
            Sign(r"fatal error: [\w/.+-]+\.(?:h|hpp|cuh|inc)\b"),
            Sign(r"nvcc fatal\s+:", away=r"NVCC compilation failed"),
            Sign(
                r"\.(?:cu|cuh|cpp|h|hpp)\(\d+\): error[: ]",
                away=r"NV(?:RTC|CC) compilation failed",
            ),
            Sign(r"No such file or directory: '?ninja\b|\bninja: (?:command )?not found"),
            Sign(r"Ninja build failed", weight=Weight.SYMPTOM),
            Sign(r"Error building extension '", weight=Weight.SYMPTOM),
            Sign(r"CalledProcessError: Command '\['ninja'", weight=Weight.SYMPTOM),
            Sign(r"ninja: build stopped", weight=Weight.SYMPTOM),
            Sign(r"^\S*\s*FAILED: .*\.(?:cuda\.)?o\b", weight=Weight.SYMPTOM),
        ),
        stack_fault=True,
    ),
    Mode(
        "flashinfer-version-mismatch",
        "Two flashinfer packages differ within one minor version, which their check refuses."
        " Install one version, or set FLASHINFER_DISABLE_VERSION_CHECK=1.",
        Action.RETRY,
        _START,
        (
            Sign(
                _FLASHINFER_PAIR + r"v?\1\.",
                unless=r"Ignoring incompatible",
                near=r"FLASHINFER_DISABLE_VERSION_CHECK",
            ),
        ),
        Remedy(
            "switch flashinfer's version check off", env={"FLASHINFER_DISABLE_VERSION_CHECK": "1"}
        ),
    ),
    Mode(
        "flashinfer-version-mismatch-minor",
        "Two flashinfer packages differ by more than a patch version: their kernels don't fit."
        " Install the same version of both.",
        Action.STOP,
        _START,
        (
            Sign(
                r"does not match flashinfer version",
                unless=r"Ignoring incompatible",
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "flashinfer-below-minimum",
        "flashinfer or the kernel package is older than this SGLang needs. Install the version"
        " that it asks for.",
        Action.STOP,
        _START,
        (
            Sign(r"is installed with version \S+,? which is less than the minimum"),
            Sign(
                r"(?:flashinfer|sgl[-_]kernel|sglang-kernel)\S*(?: version)?[ >=]+[\d.]+\w*"
                r" (?:is )?required",
                raised=True,
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "flashinfer-not-installed",
        "flashinfer isn't installed in this stack, and this configuration needs it. Install it, or"
        " choose another attention backend.",
        Action.STOP,
        _START,
        (
            Sign(r"flashinfer\S* with (?:the )?minimum required version \S+ is not"),
            Sign(
                r"No module named '(?:flashinfer\S*)'|flashinfer is not (?:installed|available)"
                r"|Please install flashinfer|PackageNotFoundError:.*flashinfer",
                raised=True,
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "hang-stale-jit-lock",
        "The server waits for a build lock that a killed process left behind. Move aside the"
        " locks that nobody holds.",
        Action.RETRY,
        _BUILD,
        (
            Sign(r"file_baton\.py|waiting for baton release", weak=True),
            Sign(
                r"(?i)(?:wait(?:ing|ed)?|acquir\w+|stuck|held|blocked|timed? ?out)\b"
                r".*\.lock\b|\.lock\b.*(?:waiting|could not be acquired|held|stale|stuck)",
                weak=True,
            ),
        ),
        Remedy(
            "move stale build locks aside",
            cleanup=(Cleanup.JIT_LOCKS,),
            requires=(Requirement(Need.STALE_LOCK),),
        ),
        ends=r"Loading JIT ops?(?!.*[Ff]inished)",
        check="no living process holds the lock",
        unmet=Action.PRUNE,
    ),
    Mode(
        "startup-timeout-slow-jit",
        "Compiling kernels took longer than the launch may take; what is built stays in the cache,"
        " so the next launch is faster. Allow twice the time.",
        Action.RETRY,
        _BUILD,
        (
            Sign(_NOT_READY, near=_STILL_BUILDING),
            Sign(
                r"(?i)\bread ?time(?:out|d out)\b",
                unless=r"0 tokens",
                near=rf"\A(?=[\s\S]*warmup)(?=[\s\S]*{_STILL_BUILDING})",
            ),
        ),
        Remedy("allow twice the time to start", longer_timeout=2.0),
        stalls=(Phase.GRAPH_CAPTURE, Phase.WARMUP),
        ends=r"JIT (?:Pre-)?Compil|DeepGEMM warmup|Building extension|^\[\d+/\d+\] .*nvcc",
    ),
    Mode(
        "startup-timeout-slow-import",
        "Nothing but imports happened before the time was up: the environment's disk is slow when"
        " its cache is cold. Allow twice the time.",
        Action.RETRY,
        _START,
        (Sign(_NOT_READY, weight=Weight.SYMPTOM),),
        Remedy("allow twice the time to start", longer_timeout=2.0),
        stalls=(Phase.START,),
    ),
)
