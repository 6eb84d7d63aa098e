"""What the interpreter does to itself before it runs anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

VARIABLES = re.compile(
    r"(SGLANG(?!_SWEEP)|SGL|NCCL|GLOO|CUDA|TRITON|FLASHINFER|TORCH|PYTORCH|HF|TRANSFORMERS|DG|"
    r"DEEPGEMM)_|(LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|PYTHONHOME|VIRTUAL_ENV|CONDA_PREFIX|"
    r"XDG_CACHE_HOME|CPATH|CC|CXX)$"
)
SENTINEL = "7"
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL")


def variables() -> dict[str, str]:
    """The variables that shape a stack, without secrets."""
    return shaping(dict(os.environ))


def shaping(env: dict[str, str]) -> dict[str, str]:
    """Those of the variables that shape a stack, without secrets."""
    kept = {name: value for name, value in env.items() if VARIABLES.match(name)}
    return {name: value for name, value in sorted(kept.items()) if not SECRET.search(name)}


def own_modules() -> dict[str, str]:
    """The files of sitecustomize and usercustomize that were run at the start."""
    names = ("sitecustomize", "usercustomize")
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return {name: str(file) for name, file in files.items() if file}


def set_at_start() -> dict[str, str | None]:
    """What start-up files made of the variables that we were given; None for one they removed."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    given = shaping({os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs})
    now = variables()
    return {name: now.get(name) for name in {**given, **now} if now.get(name) != given.get(name)}


def forced(names: list[str], interpreter: str) -> list[str]:
    """Which of the variables start-up files set even where somebody has set them already."""
    if not names:
        return []
    told = "import json, os; print(json.dumps(dict(os.environ)))"
    asked = {**os.environ, **dict.fromkeys(names, SENTINEL)}
    done = subprocess.run(
        [interpreter, "-c", told], env=asked, capture_output=True, timeout=30, check=False
    )
    try:
        kept = json.loads(done.stdout.decode().strip().rpartition("\n")[2])
    except ValueError:
        return []
    return [name for name in names if kept.get(name) != SENTINEL]
