"""Shared libraries: symbols that are missing, libraries that can't be found, two CUDA majors."""

from tasks.domain.diagnosis import Action, Need, Phase, Remedy, Requirement
from tasks.failures.catalogue.entry import Mode, Sign, Variant, Weight

_START = (Phase.START,)
_ANY = (Phase.START, Phase.GRAPH_CAPTURE, Phase.WARMUP)
_MISSING = r"(?P<library>lib[\w+.-]+?\.so[.\d]*): cannot open shared object file"
_CUDA_LIBRARY = (
    r"lib(?:cudart|cublas|cublasLt|cudnn\w*|cufft|cufile|cupti|curand|cusolver|cusparse|cusparseLt"
    r"|nccl|nvJitLink|nvrtc|nvshmem\w*|nvToolsExt|nvtx\w*)\.so"
)
_BLOCK = r"Could not load any common_ops library"
_GPU_SEEN = r"Compute capability: \d"

MODES = (
    Mode(
        "nccl-library-mismatch",
        "The NCCL library lacks a function that torch needs: two NCCL wheels overwrite each other."
        " Uninstall the one of the other CUDA major, then reinstall torch's.",
        Action.STOP,
        _START,
        (
            Sign(r"undefined symbol: p?nccl[A-Z]\w*"),
            Sign(r"NCCL version mismatch|Mismatched NCCL version", unless=r"\bINFO\b"),
        ),
        stack_fault=True,
    ),
    Mode(
        "driver-symbol-missing",
        "The NVIDIA driver's libcuda lacks a function that a wheel needs: the driver is older than"
        " the wheel's CUDA. Update the driver or take wheels built for an older CUDA.",
        Action.STOP,
        _START,
        (Sign(r"undefined symbol: (?:cu[A-Z]\w*|nvml[A-Z]\w*)"),),
        stack_fault=True,
    ),
    Mode(
        "dual-cuda-runtime",
        "Two CUDA versions are loaded into one process (a torch of one, libraries of another)."
        " Reinstall torch and its wheels for one CUDA major, and clear LD_LIBRARY_PATH.",
        Action.STOP,
        _ANY,
        (
            Sign(r"failed to open libnvrtc-builtins\.so"),
            Sign(
                r"undefined symbol: (?:cuda[A-Z]|cublas|cusparse|cusolver"
                r"|cudnn|cufft|__nvJitLink|nvJitLink|nvrtc)\w*",
            ),
            Sign(r"crashed with exit code -8\b|[Ee]xit code:? \(?-8\b"),
            Sign(
                r"version `lib(?:cudart|cublas\w*|nvJitLink|cusparse)\.so[.\d]*'"
                r" not found",
            ),
        ),
        exit_codes=(-8, 136),
        stack_fault=True,
    ),
    Mode(
        "glibcxx-too-old",
        "The libstdc++ that was loaded is older than a wheel needs. Put the environment's own"
        " libstdc++ first (conda: libstdcxx-ng), or take a newer base image.",
        Action.STOP,
        _START,
        (
            Sign(r"version `(?:GLIBCXX|CXXABI)_[\d.]+' not found"),
            Sign(r"undefined symbol: _Z(?:T[VIS])?N?K?St"),
        ),
        stack_fault=True,
    ),
    Mode(
        "glibc-too-old",
        "The system's C library is older than a wheel needs. Take a newer system or image, or a"
        " wheel built for this one.",
        Action.STOP,
        _START,
        (Sign(r"version `GLIBC_[\d.]+' not found"),),
        stack_fault=True,
    ),
    Mode(
        "abi-undefined-symbol",
        "A compiled package was built against another torch than the one installed (undefined"
        " symbol). Install the build that matches this torch.",
        Action.STOP,
        _START,
        (Sign(r"undefined symbol: \S+"),),
        stack_fault=True,
    ),
    Mode(
        "driver-not-visible",
        "No NVIDIA driver can be seen from here: no GPU on this host, or it isn't passed into the"
        " container. Start the container with the NVIDIA runtime.",
        Action.STOP,
        _START,
        (
            Sign(r"lib(?:cuda|nvidia-ml)\.so(?:\.1)?: cannot open shared"),
            Sign(
                r"Found no NVIDIA driver on your system|No CUDA GPUs are available"
                r"|NVML(?:Error\w*: NVML)? Shared Library Not Found|Driver Not Loaded"
                r"|no CUDA-capable device is detected",
                raised=True,
            ),
            Sign(r"Error 100: no CUDA-capable device is detected"),
            Sign(r"No accelerator \(.*\) is available", raised=True, weight=Weight.SYMPTOM),
            Sign(r"0 active drivers \(\[\]\)"),
        ),
    ),
    Mode(
        "shared-lib-missing-wrong-major",
        "A compiled package wants a CUDA library of another major than torch's. Install its build"
        " for torch's CUDA; adding the other CUDA's libraries would load two runtimes.",
        Action.STOP,
        _START,
        (
            # The block shows a capability only where torch's own CUDA works: what the package
            # lacks beside it is then of another major, unless the block names that same major.
            Sign(
                _CUDA_LIBRARY + r"\.(?P<major>\d+)\S*: cannot open shared",
                near=_BLOCK + r"[\s\S]*" + _GPU_SEEN,
                away=r"- CUDA version: (?P<built>\d+)\.\d[\s\S]*\.so\.(?P=built)[.:]",
            ),
            Sign(
                r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink)"
                r"\.so\.(?P<major>1[0-9])\S*: cannot open shared",
                near=r"(?:\+cu|torch\.version\.cuda\W{1,4}|torch\S* ?\(?cu)(?!<<major>>)1\d",
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "shared-lib-not-on-path",
        "A CUDA library is not on the loader's path. Put the folder that holds it (in the"
        " environment's site-packages/nvidia) on LD_LIBRARY_PATH, or run ldconfig.",
        Action.STOP,
        _START,
        (Sign(_MISSING, unless=r"lib(?:c10\w*|torch\w*|cuda)\.so", raised=True),),
        variants=tuple(
            Variant(
                r"(?P<site_packages>/[\w./@+-]+?/site-packages)/",
                Action.RETRY,
                Remedy(
                    "put torch's CUDA libraries on the loader's path",
                    env={"LD_LIBRARY_PATH": f"{{site_packages}}/nvidia/{folder}/lib"},
                    requires=(
                        Requirement(
                            Need.FILE, f"{{site_packages}}/nvidia/{folder}/lib/{{library}}*"
                        ),
                    ),
                ),
                line=library,
            )
            for library, folder in (
                (r"libnvrtc\.so\.12", "cuda_nvrtc"),
                (r"libcudart\.so\.12", "cuda_runtime"),
                (r"libcublas(?:Lt)?\.so\.12", "cublas"),
                (r"libcufft\.so\.11", "cufft"),
                (r"libcurand\.so\.10", "curand"),
                (r"libcusparse\.so\.12", "cusparse"),
                (r"libcusparseLt\.so\.0", "cusparselt"),
                (r"libcusolver\.so\.11", "cusolver"),
                (r"libcupti\.so\.12", "cuda_cupti"),
                (r"libnvJitLink\.so\.12", "nvjitlink"),
                (r"libcudnn\w*\.so\.9", "cudnn"),
                (r"libnccl\.so\.2", "nccl"),
                (r"libnvshmem\w*\.so\.3", "nvshmem"),
                (r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cusparse|cupti)\.so\.13", "cu13"),
                (r"lib(?:cufft|cusolver)\.so\.12", "cu13"),
            )
        ),
        check="the folder holds the library, of the same CUDA major as torch",
        stack_fault=True,
    ),
)
