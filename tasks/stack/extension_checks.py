"""Judge what compiled code finds when it is loaded: its libraries, symbols and their versions."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from settings.sweep import Sweep
from tasks.domain.facts import ExtensionFacts, Finding, Severity, StackFacts, SymbolFacts
from tasks.stack.imports import Cause, cause_of
from tasks.stack.system_checks import cpu_only
from tasks.stack.versions import major

_KERNELS = (
    *("sgl_kernel", "flashinfer", "flashinfer_jit_cache", "flash_attn", "flash_attn_3"),
    *("deep_gemm", "deep_ep"),
)
_DRIVER_S = {"libcuda.so.1", "libnvidia-ml.so.1"}
_TWICE = {
    "cudart": ("dual-cuda-runtime", "the CUDA runtime"),
    "cublas": ("dual-cuda-runtime", "cuBLAS"),
    "nvrtc": ("dual-cuda-runtime", "NVRTC"),
    "cudnn": ("cudnn-sublibrary-mismatch", "cuDNN"),
    "nccl": ("nccl-library-mismatch", "NCCL"),
}
"""Library -> the mode that follows when two of it are in one process, and what it is called."""


def check_extensions(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Extensions that the imports didn't touch may fail at the first request that needs them.

    Never an error: a file for another GPU is none that a server loads. What makes an import fail
    is that import's finding.
    """
    failed = {package.name for package in facts.packages if package.error is not None}
    told = [each for each in facts.extensions if each.package not in failed]
    pairs = [(each.package, cause, each) for each in told for cause in _causes(each, facts)]
    ordered = sorted(pairs, key=lambda pair: (pair[0], pair[1].mode or ""))
    for (package, mode), group in groupby(ordered, key=lambda pair: (pair[0], pair[1].mode)):
        found = list(group)
        cause = found[0][1]
        loud = package in _KERNELS and not cpu_only(facts)
        others = f" (and {len(found) - 1} more files)" if len(found) > 1 else ""
        yield Finding(
            Severity.WARNING if loud else Severity.INFO,
            f"{package}: {_file(found[0][2])}{others} can't be loaded: {cause.explanation}",
            evidence_of(found[0][2]),
            cause.fix,
            mode,
        )


def _causes(extension: ExtensionFacts, facts: StackFacts) -> Iterator[Cause]:
    """Why an extension can't be loaded; only the driver's library is another check's business."""
    cuda = facts.torch.get("cuda")
    torch_cuda = cuda if isinstance(cuda, str) else None
    for name in extension.libraries:
        if name not in _DRIVER_S:
            line = f"{name}: cannot open shared object"
            yield cause_of(line, facts.system.libraries, torch_cuda)
            return
    for version in extension.versions:
        yield cause_of(f"version `{version.rpartition(' ')[2]}' not found", {}, torch_cuda)
        return
    for symbol in extension.undefined:
        yield cause_of(
            f"undefined symbol: {symbol.name}", {}, torch_cuda, {symbol.name: symbol.readable}
        )
        return


def evidence_of(extension: ExtensionFacts) -> str:
    """What an extension lacks, and what is there instead, as far as it fits a line or two."""
    parts = [*extension.libraries, *extension.versions[:2]]
    for symbol in _telling(extension):
        instead = f", torch has {symbol.offered[0]}" if symbol.offered else ""
        parts.append(f"{symbol.readable}{instead}")
    rest = extension.undefined_count - len(_telling(extension))
    more = f" and {rest} more symbols" if rest > 0 else ""
    return f"{extension.path} lacks {'; '.join(parts)}{more}"


def _telling(extension: ExtensionFacts) -> Sequence[SymbolFacts]:
    """One symbol, best one that torch has in another form: that says what changed."""
    return sorted(extension.undefined, key=lambda symbol: not symbol.offered)[:1]


def _file(extension: ExtensionFacts) -> str:
    return extension.path.rpartition("/")[2]


def check_loaded(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Two of one library in a process: which of them a call reaches is a matter of luck."""
    said: set[str] = set()
    for package, paths in facts.loaded.items():
        for stem, (mode, name) in _TWICE.items():
            there = _different(stem, paths)
            if len(there) > 1 and stem not in said:
                said.add(stem)
                yield Finding(
                    Severity.WARNING,
                    f"importing {package} loads {name} twice",
                    ", ".join(there),
                    "remove the wheel or the folder on LD_LIBRARY_PATH that brings the second one",
                    mode,
                )


def _different(stem: str, paths: Sequence[str]) -> list[str]:
    """Files of a library of which one would do; cuDNN's parts belong together by their folder."""
    files = [path for path in paths if re.search(rf"/lib{stem}[-\w]*\.so", path)]
    if stem in ("cudnn", "cublas"):
        firsts = {path.rpartition("/")[0]: path for path in reversed(files)}
        return sorted(firsts.values())
    return sorted(path for path in files if "builtins" not in path)


def check_cuda_wheels(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """CUDA's own wheels must be of torch's major; two of one kind share a folder and mix there."""
    cuda = facts.torch.get("cuda")
    wanted = major(cuda) if isinstance(cuda, str) else None
    if wanted is None:
        return
    for kind, mode in (("cudnn", "cudnn-sublibrary-mismatch"), ("nccl", "nccl-library-mismatch")):
        names = [n for n in facts.distributions if re.fullmatch(rf"nvidia-{kind}-cu\d+", n)]
        told = ", ".join(f"{name} {facts.distributions[name]}" for name in names)
        right = f"nvidia-{kind}-cu{wanted}"
        if len(names) > 1:
            yield Finding(
                Severity.WARNING,
                f"{' and '.join(names)} are both installed, into one folder",
                told,
                f"uninstall both, then install {right} alone",
                mode,
            )
        elif names and names[0] != right:
            yield Finding(
                Severity.WARNING,
                f"{names[0]} is installed beside a torch for CUDA {wanted}",
                told,
                f"install {right}",
                "cudnn-not-initialized" if kind == "cudnn" else mode,
            )


def check_cudnn_of_torch(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """torch compares the cuDNN that it finds with the one that it was built for."""
    error = facts.torch.get("cudnn_error")
    if isinstance(error, str) and error and not cpu_only(facts):
        yield Finding(
            Severity.ERROR,
            "torch refuses the cuDNN that it finds",
            error.partition("\n")[0][:500],
            "take the folder of the other cuDNN off LD_LIBRARY_PATH, or install the cuDNN that "
            "this torch was built for",
            "cudnn-version-incompatible" if "incompatib" in error else "cudnn-not-initialized",
        )
