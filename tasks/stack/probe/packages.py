"""What the interpreter has installed, what of it can be imported, and what torch says of itself."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import mmap
import os
from functools import partial
from importlib import metadata
from typing import Callable  # noqa: UP035 - Python 3.8 on the host

from .jobs import Json, attempt, told


def installed() -> dict[str, str]:
    """Every wheel and its version."""
    return {wheel.metadata["Name"]: wheel.version for wheel in metadata.distributions()}


def requirements(names: list[str]) -> dict[str, list[str]]:
    """What some of the wheels ask for, where they are installed."""
    found = {name: attempt(partial(metadata.requires, name)) for name in names}
    return {name: asked for name, asked in found.items() if asked is not None}


def find(name: str) -> str | None:
    """Where a module would be imported from, without importing it; None where it isn't there."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin or "namespace package"


def mapped() -> list[str]:
    """The shared objects that are loaded into this process."""
    with open("/proc/self/maps", errors="replace") as file:
        paths = [line.split(None, 5)[5].strip() for line in file if line.count("/")]
    return [path for path in dict.fromkeys(paths) if ".so" in os.path.basename(path)]


def try_import(name: str) -> Json:
    """Import a module; what it says its version is, where it lies, and torch's own facts."""
    module = importlib.import_module(name)
    version = getattr(module, "__version__", None)
    value: dict[str, Json] = {
        "version": version and str(version),
        "origin": getattr(module, "__file__", None),
    }
    if name == "torch":
        value["torch"] = torch_facts(module)
    # Last, since asking torch loads cuDNN.
    value["loaded"] = mapped()
    return value


def torch_facts(torch: Json) -> dict[str, Json]:
    """What torch was built with and sees; no GPU memory is taken."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    questions: dict[str, Callable[[], Json]] = {
        "version": lambda: str(torch.__version__),
        "cuda": lambda: torch.version.cuda,
        "hip": lambda: torch.version.hip,
        "cudnn": lambda: torch.backends.cudnn.version(),
        "cudnn_error": lambda: complaint(torch.backends.cudnn.version),
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
        "cxx11_abi": lambda: bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        "arch_list": lambda: torch.cuda.get_arch_list() or torch._C._cuda_getArchFlags().split(),
        "device_count": lambda: torch.cuda.device_count(),
    }
    return {name: attempt(question) for name, question in questions.items()}


def complaint(question: Callable[[], Json]) -> str | None:
    """What a question is answered with where the answer is an error."""
    try:
        question()
    except Exception as error:  # noqa: BLE001 - the question is foreign code
        return told(error)
    return None


def unmentioned(names: list[str], loaded: list[str]) -> list[str] | None:
    """Which variables the loaded NCCL doesn't mention; None where none is loaded."""
    path = next((each for each in loaded if "/libnccl.so" in each), None)
    if path is None:
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return [name for name in names if text.find(name.encode() + b"\0") < 0]


def ask_driver() -> Json:
    """What the driver's library serves, without a context on any GPU."""
    cuda = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return {"cuda": version.value, "status": int(cuda.cuInit(0))}
