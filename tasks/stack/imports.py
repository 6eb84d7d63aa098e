"""Say why an import failed: the line that decides, and the failure mode that it foresees."""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.stack.versions import major

_DECIDING = re.compile(
    r"undefined symbol|cannot open shared object|version `|"
    r"does not match|forward compatibility|CUDA driver version"
)
_SYMBOL = re.compile(r"undefined symbol: (\w+)")
_LIBRARY = re.compile(r"((lib[\w.+-]+?\.so)\.?(\d*)[\d.]*): cannot open shared object")
_CUDA_LIBRARIES = re.compile(
    r"lib(cudart|cublas|cublasLt|nvrtc|nvrtc-builtins|nvJitLink|cusparse)\."
)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something can't be loaded: the mode that it foresees, in words, and the way out."""

    mode: str | None
    explanation: str
    fix: str


def deciding_line(told: str, exit_code: int | None, stderr: str = "") -> str:
    """The one line of an import's failure that says why.

    Several lines may stand there: wrappers report every attempt, and the last is often an echo
    ("No module named 'common_ops'"). `exit_code` is None for a time-out, negative for a signal.
    """
    lines = [line.strip().removeprefix("- ") for line in (told or stderr).splitlines()]
    if exit_code is None:
        return "did not finish in time"
    if exit_code < 0:
        last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "")
        return f"died of {_signal_name(-exit_code)}" + (f": {last.strip()[:200]}" if last else "")
    for line in lines:
        if _DECIDING.search(line):
            return line[:500]
    telling = [line for line in lines if re.search(r"\w+(Error|Exception|Exit)\b.*\S", line)]
    said = [line for line in telling if not re.fullmatch(r"\w+:\s*", line)]
    return ((said if told else said[::-1]) or lines or [""])[0][:500]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cause_of(
    line: str,
    libraries: Mapping[str, tuple[str, ...]],
    torch_cuda: str | None,
    symbols: Mapping[str, str] | None = None,
) -> Cause:
    """Judge a deciding line.

    `libraries` tells where the libraries that were missed lie, `symbols` what people read a
    mangled name as.
    """
    if symbol := _SYMBOL.search(line):
        name = symbol.group(1)
        return _undefined(name, (symbols or {}).get(name, name))
    if library := _LIBRARY.search(line):
        name, stem, version = library.groups()
        return _not_found(name, stem, version, libraries.get(stem, ()), torch_cuda)
    for pattern, cause in _OTHER:
        if re.search(pattern, line):
            return cause
    return Cause(None, "the import fails", "see the evidence")


def _undefined(symbol: str, readable: str) -> Cause:
    """`cu…` is the driver's, `nccl…` NCCL's; anything else is a build against another torch."""
    if re.match(r"cu[A-Z]", symbol):
        return Cause(
            "driver-symbol-missing",
            f"the driver library lacks {symbol}",
            "update the NVIDIA driver",
        )
    if symbol.startswith("nccl"):
        return Cause(
            "nccl-library-mismatch",
            f"the NCCL that is loaded lacks {symbol}",
            "remove the second NCCL (wheel, LD_LIBRARY_PATH or LD_PRELOAD)",
        )
    return Cause(
        "abi-undefined-symbol",
        f"it was built against another torch ({readable} is missing)",
        "install the build that belongs to the installed torch, or rebuild it",
    )


def _not_found(
    name: str,
    stem: str,
    version: str,
    lying: tuple[str, ...],
    torch_cuda: str | None,
) -> Cause:
    """A library that lies somewhere is a matter of the path; another major is not."""
    if stem == "libcuda.so":
        return Cause(
            "driver-not-visible",
            "the NVIDIA driver's library is not visible here",
            "start the container with the NVIDIA runtime, or install the driver",
        )
    here = [path for path in lying if path.endswith(name)]
    if here:
        folder = here[0].rpartition("/")[0]
        return Cause(
            "shared-lib-not-on-path",
            f"{name} is there, but not where the loader looks",
            f"put {folder} on LD_LIBRARY_PATH in the host's env",
        )
    other_cuda = bool(_CUDA_LIBRARIES.match(stem)) and version not in ("", str(major(torch_cuda)))
    if lying or (other_cuda and torch_cuda):
        return Cause(
            "shared-lib-missing-wrong-major",
            f"{name} is wanted, and only another version is there",
            "install the build for the CUDA of the installed torch; don't mix two CUDA majors",
        )
    return Cause("shared-lib-not-on-path", f"{name} is nowhere to be found", f"install {name}")


_OTHER: tuple[tuple[str, Cause], ...] = (
    (
        r"version `GLIBC_",
        Cause("glibc-too-old", "the system's glibc is too old", "use a build for this glibc"),
    ),
    (
        r"version `(GLIBCXX|CXXABI)_",
        Cause(
            "glibcxx-too-old",
            "the libstdc++ that is loaded is too old",
            "put a newer libstdc++.so.6 first on LD_LIBRARY_PATH",
        ),
    ),
    (
        r"flashinfer-\S+ version .* does not match",
        Cause(
            "flashinfer-version-mismatch",
            "flashinfer's wheels are of different versions",
            "install the same version of both; FLASHINFER_DISABLE_VERSION_CHECK=1 passes over it",
        ),
    ),
    (
        r"did not finish in time",
        Cause("startup-timeout-slow-import", "the import takes too long", "warm the file cache up"),
    ),
    (r"^died of ", Cause(None, "the import crashes the interpreter", "reinstall it")),
    (r"No module named", Cause(None, "a module that it needs is missing", "install it")),
)
