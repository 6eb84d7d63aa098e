"""The compilers that kernels are built with at launch, and where shared libraries are."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import partial

from .jobs import Job, Json
from .packages import find

MISSING_LIBRARY = re.compile(r"(lib[\w.+-]+?\.so)[\d.]*: cannot open shared object")
HEADERS = ("cuda_runtime.h", "cuda_fp16.h", "cublas_v2.h", "curand.h", "nvrtc.h")


def toolkit() -> str:
    """The CUDA toolkit's folder, as torch and flashinfer look for it."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc, usual = shutil.which("nvcc"), "/usr/local/cuda"
    if named or nvcc is None:
        return named or (usual if os.path.isdir(usual) else "")
    return os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))


def tool_paths() -> dict[str, str]:
    """nvcc, and each ptxas that Triton could use: named by a variable, its own, the toolkit's."""
    home, triton = toolkit(), os.path.dirname(find("triton") or "/")
    bundled = f"{triton}/backends/nvidia/bin"
    tools = {
        "nvcc": f"{home}/bin/nvcc",
        "triton ptxas": f"{bundled}/ptxas",
        "triton ptxas-blackwell": f"{bundled}/ptxas-blackwell",
        "toolkit ptxas": f"{home}/bin/ptxas",
    }
    there = {name: path for name, path in tools.items() if os.path.exists(path)}
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        if os.environ.get(name):
            there[name] = os.environ[name]
    return there


def tool_jobs(timeout_s: float) -> list[Job]:
    """Ask each compiler for its release and the architectures that it knows."""
    return [
        Job(f"tool {name}", timeout_s, function=partial(ask_tool, path))
        for name, path in tool_paths().items()
    ]


def ask_tool(path: str) -> Json:
    """A compiler's own words; raises where it can't be run."""
    version, options = (
        subprocess.run([path, option], capture_output=True, check=False).stdout.decode()
        for option in ("--version", "--help")
    )
    architectures = sorted(set(re.findall(r"'sm_(\d+)[a-z]?'", options)), key=int)
    return {"path": path, "said": version[-2000:], "architectures": architectures}


def builders() -> Json:
    """What a kernel that is built at launch needs beside nvcc: programs by name, and headers."""
    near = os.path.dirname(sys.executable)
    programs = {
        "cc": os.environ.get("CC") or "",
        "c++": os.environ.get("CXX") or "",
        "ninja": shutil.which("ninja") or "",
        "ninja beside python": f"{near}/ninja" if os.path.exists(f"{near}/ninja") else "",
    }
    programs["cc"] = shutil.which(programs["cc"] or "gcc") or shutil.which("cc") or ""
    programs["cc"] = programs["cc"] or shutil.which("clang") or ""
    programs["c++"] = shutil.which(programs["c++"] or "c++") or shutil.which("g++") or ""
    folder = f"{toolkit()}/include"
    there = toolkit() and os.path.isdir(folder)
    missing = [name for name in HEADERS if there and not os.path.exists(f"{folder}/{name}")]
    python = os.path.join(sysconfig.get_path("include"), "Python.h")
    return {
        "programs": programs,
        "headers_missing": missing,
        "python_headers": os.path.exists(python),
    }


def loader_cache() -> dict[str, list[str]]:
    """What `ldconfig -p` lists: the libraries that the loader finds without being told where."""
    places = [shutil.which("ldconfig"), "/sbin/ldconfig", "/usr/sbin/ldconfig"]
    program = next((path for path in places if path and os.path.exists(path)), None)
    found: dict[str, list[str]] = {}
    try:
        said = program and subprocess.run(
            [program, "-p"], capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return found
    for name, path in parse_cache(said.stdout.decode(errors="replace") if said else ""):
        found.setdefault(name, []).append(path)
    return found


def parse_cache(text: str) -> list[tuple[str, str]]:
    """The 64-bit libraries of `ldconfig -p` with their paths."""
    lines = re.findall(r"^\s*(\S+) \(([^)]*)\) => (\S+)", text, re.MULTILINE)
    return [(name, path) for name, kind, path in lines if "64" in kind]


def libraries(text: str) -> dict[str, list[str]]:
    """Where the shared libraries that were missed lie, in whatever version."""
    places = [f"{path}/nvidia/*/lib" for path in sys.path if path]
    places += [f"{toolkit()}/lib64", "/usr/local/cuda*/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64"]
    return {
        stem: sorted({path for place in places for path in glob.glob(f"{place}/{stem}*")})[:8]
        for stem in sorted(set(MISSING_LIBRARY.findall(text)))
    }
