"""What a scenario file says: how fast time runs, which host is pretended, and what goes wrong.

    time_scale = 0.1            # serving: 0.5 is twice as fast
    launch_time_scale = 0.01    # the phases of a launch
    sglang_version = "0.5.9"

    [model]                     # any field of simulator.model.Parameters
    auto_channels = 8

    [[fault]]
    kind = "oom-graph-capture"
    when = {cuda_graph_max_bs = {min = 256}, speculative_num_steps = 5, env.NCCL_PROTO = "LL"}
    attempts = 1                # only the first launch that matches; default: every one

`when` names arguments as SGLang's ServerArgs does, variables under `env`, and the software stack
as `stack`. A value matches if it is equal, one of a list, or within `{min, max}`; `{not = value}`
and `{absent = true}` say what they say. An empty `when` always matches.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from simulator.flags import DEFAULT_VERSION, Configuration
from simulator.model import Parameters, StackSpeed

KINDS = frozenset(
    {
        "abi-undefined-symbol",
        "cudnn-check",
        "death-mid-load",
        "garbage",
        "health-early",
        "leaky-child",
        "nan",
        "nccl-hang",
        "oom-graph-capture",
        "port-taken",
        "silent-kill",
        "slow-start",
    }
)


# Faults that a variable cures: a launch that sets it is not concerned.
CURES = {"cudnn-check": ("SGLANG_DISABLE_CUDNN_CHECK", "1")}


class ScenarioError(ValueError):
    """A scenario file says something that can't be meant."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: of what kind, for which launches, how often, and its details."""

    kind: str
    when: Mapping[str, Any]
    attempts: int | None
    details: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Name the fault for the count of launches that it has already hit."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    def number(self, name: str, default: float) -> float:
        return float(self.details.get(name, default))


@dataclass(frozen=True, slots=True)
class Scenario:
    """One pretend host's behaviour; the default is a healthy host in real time."""

    time_scale: float = 1.0
    launch_time_scale: float = 1.0
    sglang_version: str = DEFAULT_VERSION
    parameters: Parameters = field(default_factory=Parameters)
    faults: tuple[Fault, ...] = ()


def load(path: str | Path | None) -> Scenario:
    """Read a scenario file; none gives the healthy host."""
    if not path:
        return Scenario()
    try:
        return parse(tomllib.loads(Path(path).read_text()))
    except (OSError, tomllib.TOMLDecodeError, ScenarioError) as error:
        raise ScenarioError(f"scenario {path}: {error}") from error


def parse(data: Mapping[str, Any]) -> Scenario:
    known = {"time_scale", "launch_time_scale", "sglang_version", "model", "fault"}
    _refuse_unknown(data, known, "scenario")
    return Scenario(
        time_scale=float(data.get("time_scale", 1.0)),
        launch_time_scale=float(data.get("launch_time_scale", 1.0)),
        sglang_version=str(data.get("sglang_version", DEFAULT_VERSION)),
        parameters=_parameters(data.get("model", {})),
        faults=tuple(map(_fault, data.get("fault", []))),
    )


def _refuse_unknown(data: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise ScenarioError(f"unknown key {key!r} in {where}: use {', '.join(sorted(known))}")


def _parameters(overrides: Mapping[str, Any]) -> Parameters:
    _refuse_unknown(overrides, {f.name for f in fields(Parameters)}, "[model]")
    values = dict(overrides)
    if "stacks" in values:
        values["stacks"] = {name: StackSpeed(**speed) for name, speed in values["stacks"].items()}
    return replace(Parameters(), **values)


def _fault(data: Mapping[str, Any]) -> Fault:
    details = dict(data)
    kind = details.pop("kind", None)
    if kind not in KINDS:
        raise ScenarioError(f"unknown fault kind {kind!r}: use {', '.join(sorted(KINDS))}")
    return Fault(kind, details.pop("when", {}), details.pop("attempts", None), details)


def matches(fault: Fault, configuration: Configuration, environment: Mapping[str, str]) -> bool:
    """Tell whether a fault concerns this launch (however often it has already struck)."""
    variable, cure = CURES.get(fault.kind, ("", ""))
    if variable and environment.get(variable) == cure:
        return False
    return all(
        _matches_environment(expected, environment)
        if name == "env"
        else value_matches(expected, _value(name, configuration, environment))
        for name, expected in fault.when.items()
    )


def _value(name: str, configuration: Configuration, environment: Mapping[str, str]) -> object:
    if name == "stack":
        return environment.get("SIMULATOR_STACK")
    return configuration.arguments.get(name)


def _matches_environment(expected: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    return all(value_matches(value, environment.get(name)) for name, value in expected.items())


def value_matches(expected: object, actual: object) -> bool:
    """Compare one value of a `when`; variables are text, so they are compared as text."""
    match expected:
        case dict():
            return _within(expected, actual)
        case list():
            return any(value_matches(one, actual) for one in expected)
        case bool() if not isinstance(actual, str):
            return bool(actual) is expected
        case _:
            return actual is not None and str(expected) == str(actual)


def _within(bounds: Mapping[str, Any], actual: object) -> bool:
    if "absent" in bounds:
        return (actual is None) is bool(bounds["absent"])
    if "not" in bounds:
        return not value_matches(bounds["not"], actual)
    try:
        number = float(str(actual))
    except ValueError:
        return False
    low, high = float(bounds.get("min", number)), float(bounds.get("max", number))
    return low <= number <= high


def strike(
    faults: Sequence[Fault],
    configuration: Configuration,
    environment: Mapping[str, str],
    root: Path | None,
) -> dict[str, Fault]:
    """Return the faults that hit this launch by kind, and count them where they are limited."""
    struck: dict[str, Fault] = {}
    for fault in faults:
        if matches(fault, configuration, environment) and _attempt_left(fault, root):
            struck.setdefault(fault.kind, fault)
    return struck


def _attempt_left(fault: Fault, root: Path | None) -> bool:
    if fault.attempts is None:
        return True
    counts = (root or Path(os.environ.get("TMPDIR", "/tmp"))) / "state"
    counts.mkdir(parents=True, exist_ok=True)
    count = counts / f"fault-{fault.key}"
    struck = int(count.read_text()) if count.exists() else 0
    count.write_text(str(struck + 1))
    return struck < fault.attempts
