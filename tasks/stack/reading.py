"""Read the probe's answer into facts; pure, so that a captured answer is a test case."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tasks.domain.facts import PackageFacts, StackFacts, SystemFacts
from tasks.stack.help_text import parse_help
from tasks.stack.imports import deciding_line

IMPORTS = (
    "torch", "sglang", "transformers", "sgl_kernel", "flashinfer", "triton", "flash_attn",
    "deep_gemm", "sitecustomize",
)  # fmt: skip
"""What is tried; the slow ones first, so that they don't come last."""

_WHEELS = {
    "sgl_kernel": ("sglang-kernel", "sgl-kernel"),
    "flashinfer": ("flashinfer-python",),
    "flash_attn": ("flash-attn",),
    "deep_gemm": ("deep-gemm",),
}
_OF_INTEREST = re.compile(
    r"(torch|triton|sgl|flash|deep-gemm|deep-ep|transformers|tokenizers|safetensors|xgrammar|"
    r"nvidia-|cuda-|numpy|apache-tvm-ffi|tilelang|compressed-tensors|mooncake|nixl|quack)"
)
_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*\(?==\s*([0-9][A-Za-z0-9.+]*)\)?\s*$")


def read_answer(interpreter: str, stdout: str, stderr: str) -> StackFacts:
    """Read the last line of the probe's output; without one, the stack can't be run."""
    try:
        answer: dict[str, Any] = json.loads(stdout.strip().rpartition("\n")[2])
        return _facts(interpreter, answer, startup_complaint(stderr))
    except (ValueError, KeyError, TypeError):
        said = [line for line in stderr.strip().splitlines() if line.strip()]
        return unrunnable(interpreter, said[-1] if said else "no answer")


def unrunnable(interpreter: str, error: str) -> StackFacts:
    """The facts of an interpreter that can't be run."""
    return StackFacts(interpreter, "", "", (), error=error)


def startup_complaint(stderr: str) -> str:
    """What Python says of a sitecustomize that raised before the program began."""
    lines = stderr.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("Error in sitecustomize")]
    return " ".join(line.strip() for line in lines[starts[0] :][:2]) if starts else ""


def wheel_name(name: str) -> str:
    """The name of a wheel as the package index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(requires: list[str]) -> dict[str, str]:
    """The exact versions that a wheel asks for, of the wheels that matter and on every system."""
    found = [_PIN.match(line) for line in requires if ";" not in line]
    pins = {wheel_name(pin.group(1)): pin.group(2) for pin in found if pin}
    return {name: version for name, version in pins.items() if _OF_INTEREST.match(name)}


def _facts(interpreter: str, answer: Mapping[str, Any], startup: str) -> StackFacts:
    wheels = {wheel_name(name): version for name, version in answer["wheels"].items()}
    launch_help = answer["help"]
    options = parse_help(launch_help["stdout"])
    torch = answer["imports"].get("torch", {}).get("value") or {}
    return StackFacts(
        interpreter=interpreter,
        python_version=answer["python"],
        platform=answer["platform"],
        packages=tuple(
            _package(name, answer["imports"].get(name), wheels)
            for name in IMPORTS
            if name != "sitecustomize" or name in answer["imports"]
        ),
        torch=torch.get("torch", {}),
        env=answer["env"],
        flags=frozenset(name for option in options for name in option.names),
        options=options,
        flags_error="" if options else _why_no_flags(launch_help),
        distributions={n: v for n, v in sorted(wheels.items()) if _OF_INTEREST.match(n)},
        pins=pins_of(answer["requires"]),
        system=_system(answer),
        startup=startup,
    )


def _package(
    name: str, outcome: Mapping[str, Any] | None, wheels: Mapping[str, str]
) -> PackageFacts:
    """A package that wasn't found wasn't tried; its wheel tells the version of one that failed."""
    named = [wheels[wheel] for wheel in _WHEELS.get(name, (wheel_name(name),)) if wheel in wheels]
    version = named[0] if named else None
    if outcome is None:
        return PackageFacts(name, version, imported=False)
    value = outcome.get("value")
    if value is None:
        error = deciding_line(outcome.get("error", ""), outcome["code"], outcome["stderr"])
        return PackageFacts(name, version, False, outcome["seconds"], error)
    version = version or value["version"]
    return PackageFacts(name, version, True, outcome["import_s"], None, value["origin"] or "")


def _why_no_flags(launch_help: Mapping[str, Any]) -> str:
    if launch_help["code"] == 0:
        return "--help lists no options"
    return deciding_line("", launch_help["code"], launch_help["stderr"])


def _system(answer: Mapping[str, Any]) -> SystemFacts:
    system, driver = answer["system"], answer["driver"]
    served = driver.get("value")
    shm, disk = system["shm"] or (None, None), system["disk"] or (None, None)
    tools = {name: re.search(r"release (\d+\.\d+)", said) for name, said in answer["tools"].items()}
    return SystemFacts(
        glibc=system["glibc"],
        driver_cuda=served["cuda"] if served else None,
        driver_status=_driver_status(driver),
        shm_total_bytes=shm[0],
        shm_free_bytes=shm[1],
        disk_free_bytes=disk[1],
        cuda_home=system["cuda_home"],
        tools={name: match.group(1) if match else "" for name, match in tools.items()},
        paths=system["paths"],
        libraries={stem: tuple(paths) for stem, paths in answer["libraries"].items()},
    )


def _driver_status(driver: Mapping[str, Any]) -> str:
    """`ok`, the number that `cuInit` returned, how the question ended, or nothing: no library."""
    if driver.get("value"):
        status = driver["value"]["status"]
        return "ok" if status == 0 else str(status)
    if "cannot open shared object" in driver.get("error", ""):
        return ""
    return deciding_line(driver.get("error", ""), driver["code"], driver["stderr"])
