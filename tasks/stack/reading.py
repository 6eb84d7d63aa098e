"""Read the probe's answer into facts; pure, so that a captured answer is a test case."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tasks.domain.facts import (
    ExtensionFacts,
    ModelFacts,
    PackageFacts,
    StackFacts,
    SymbolFacts,
    XidFacts,
)
from tasks.stack.help_text import parse_help
from tasks.stack.imports import deciding_line
from tasks.stack.system_reading import read_system

IMPORTS = (
    "torch", "sglang", "transformers", "sgl_kernel", "flashinfer", "triton", "flash_attn",
    "deep_gemm", "sitecustomize",
)  # fmt: skip
"""What is tried; the slow ones first, so that they don't come last."""

EXTENDED = (
    "sgl_kernel", "flashinfer", "flashinfer_jit_cache", "flash_attn", "flash_attn_3", "deep_gemm",
    "deep_ep", "xgrammar", "tvm_ffi", "torchvision", "torchaudio", "torchao",
)  # fmt: skip
"""Whose compiled extensions are examined: what SGLang loads that is built against torch or CUDA."""

REQUIREMENTS = (
    "torch", "flashinfer-python", "flashinfer-jit-cache", "sgl-kernel", "sglang-kernel",
    "flash-attn", "torchvision", "torchaudio", "torchao", "xgrammar", "vllm",
)  # fmt: skip
"""Wheels that ask for a torch, and torch, that asks for CUDA's."""

CACHED = ("libcu", "libnv", "libnccl", "libstdc++", "libgomp")
"""What of the loader's cache is kept: the beginnings of the names of libraries."""

_LOADED = re.compile(
    r"lib(cudart|cudnn|nccl|cublas|nvrtc|nvJitLink|cusparse|cufft|nvshmem|cuda|stdc\+\+|torch|c10)"
)
_TOLD = ("cuda", "cudnn", "nccl")
"""What torch says it has none of; its other answers are left out where it has none."""

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
        torch={n: v for n, v in torch.get("torch", {}).items() if v is not None or n in _TOLD},
        env=answer["env"],
        flags=frozenset(name for option in options for name in option.names),
        options=options,
        flags_error="" if options else _why_no_flags(launch_help),
        distributions={n: v for n, v in sorted(wheels.items()) if _OF_INTEREST.match(n)},
        pins=pins_of(answer["requires"]),
        system=read_system(answer),
        startup=startup,
        requirements={name: tuple(asked) for name, asked in answer["requirements"].items()},
        startup_files=answer["startup"]["files"],
        startup_sets=answer["startup"]["sets"],
        startup_forced=tuple(answer["startup"]["forced"]),
        nccl_unknown=_unmentioned(answer["nccl"]),
        symbols=answer["symbols"],
        loaded={name: _loaded(outcome) for name, outcome in answer["imports"].items()},
        ldconfig={name: tuple(paths) for name, paths in answer["ldconfig"].items()},
        extensions=_extensions(answer["extensions"]),
        device_code=_device_code(answer),
        extensions_examined=(answer["extensions"].get("value") or {}).get("examined", 0),
        models=tuple(_model(path, asked) for path, asked in answer["models"].items()),
        xids=None if answer["xids"] is None else tuple(XidFacts(**each) for each in answer["xids"]),
    )


def _loaded(outcome: Mapping[str, Any]) -> tuple[str, ...]:
    """CUDA's, torch's and the compiler's libraries that an import brought into its process."""
    paths = (outcome.get("value") or {}).get("loaded", [])
    return tuple(path for path in paths if _LOADED.match(path.rpartition("/")[2]))


def _unmentioned(outcome: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The variables that NCCL doesn't mention; None where there is no NCCL to look into."""
    names = outcome.get("value")
    return None if names is None else tuple(names)


def _extensions(outcome: Mapping[str, Any]) -> tuple[ExtensionFacts, ...]:
    return tuple(
        ExtensionFacts(
            package=fault["package"],
            path=fault["path"],
            libraries=tuple(fault["libraries"]),
            versions=tuple(fault["versions"]),
            undefined_count=fault["count"],
            undefined=tuple(
                SymbolFacts(each["name"], each["readable"], tuple(each["offered"]))
                for each in fault["undefined"]
            ),
        )
        for fault in (outcome.get("value") or {}).get("faults", [])
    )


def _device_code(answer: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Only of extensions that an import loaded: others may be meant for other GPUs."""
    imports = [outcome.get("value") or {} for outcome in answer["imports"].values()]
    loaded = {path for value in imports for path in value.get("loaded", [])}
    code = (answer["extensions"].get("value") or {}).get("code", {})
    return {path: tuple(built) for path, built in code.items() if path in loaded}


def _model(path: str, outcome: Mapping[str, Any]) -> ModelFacts:
    """What was found of a model; one that could not be looked at is not said to be missing."""
    asked = outcome.get("value") or {"there": True}
    known = asked.get("known", {})
    return ModelFacts(
        path=path,
        there=asked["there"],
        hub=asked.get("hub", False),
        config=asked.get("config"),
        bytes=asked.get("bytes", 0),
        shards=asked.get("shards", 0),
        missing=tuple(asked.get("missing", ())),
        damaged=asked.get("damaged", {}),
        unreadable=tuple(asked.get("unreadable", ())),
        unfinished=asked.get("unfinished", 0),
        tokenizer=asked.get("tokenizer", True),
        served=known.get("sglang"),
        known_type=known.get("transformers"),
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
