"""What an axis of a sweep may be called, and which values it may take."""

import re
from collections.abc import Iterable, Sequence

from settings.nearest import suggest
from settings.variables import variable_name_fault, variable_text

Scalar = bool | int | float | str | None

NAMED_AXES = ("cuda_graph_max_bs", "nccl_channels", "speculative_steps", "stack")
_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_LEAST = {"cuda_graph_max_bs": 1, "nccl_channels": 1, "speculative_steps": 0}
NODES = "nnodes"
_OURS: dict[str, Scalar] = {"node_rank": 0, "dist_init_addr": None, "nccl_init_addr": None}
"""Flags that each node of a server gets from the sweep, with what they are for a server on one."""

_SAYS_THE_SAME = {
    "cuda_graph_max_bs": ("args.cuda_graph_max_bs", "args.cuda_graph_max_bs_decode"),
    "nccl_channels": ("env.NCCL_MIN_NCHANNELS", "env.NCCL_MAX_NCHANNELS"),
}


def axis_name(name: object) -> str:
    """The name of an axis as it is kept: `args.--tp-size` and `args.tp_size` are the same."""
    prefix, _, rest = str(name).partition(".")
    return f"args.{rest.lstrip('-').replace('-', '_')}" if prefix == "args" else str(name)


def name_fault(name: str) -> str:
    """What is wrong with the name of an axis, or nothing."""
    prefix, _, rest = name.partition(".")
    if name in NAMED_AXES or (prefix == "args" and _FLAG.fullmatch(rest)):
        return ""
    if prefix == "env" and rest:
        return variable_name_fault(rest)
    every = f"; the axes are {', '.join(NAMED_AXES)}, args.<flag> and env.<VARIABLE>"
    return f"no such axis{suggest(name, NAMED_AXES) or every}"


def value_fault(axis: str, value: Scalar) -> str:
    """What is wrong with one value of an axis, or nothing."""
    least = _LEAST.get(axis)
    if least is not None and (type(value) is not int or value < least):
        return f"{value!r} is not a whole number of at least {least}"
    if axis == "stack" and not (isinstance(value, str) and value):
        return f"{value!r} is not the path of a Python interpreter"
    return several_hosts_fault(axis.removeprefix("args."), value)


def several_hosts_fault(flag: str, value: object) -> str:
    """What is wrong with a flag that spreads a server over several hosts, or nothing."""
    if flag == NODES and value is not None and (type(value) is not int or value < 1):
        return f"{value!r} is not a whole number of hosts of at least 1"
    if flag in _OURS and value not in (None, _OURS[flag]):
        return (
            f"{value!r} can't be chosen: each node gets its own from the sweep;"
            " leave it out, and set nnodes"
        )
    return ""


def values_faults(axis: str, values: Sequence[Scalar]) -> list[str]:
    """What is wrong with the values of an axis together and one by one."""
    if not values:
        return ["an axis needs at least one value"]
    faults = [fault for value in values if (fault := value_fault(axis, value))]
    if len({(type(value), value) for value in values}) < len(values):
        faults.append(f"{list(values)} names a value twice")
    return faults


def conflicts(axes: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of axes that set the same flag or variable, the named one first."""
    named = list(axes)
    return [
        (axis, other)
        for axis, others in _SAYS_THE_SAME.items()
        if axis in named
        for other in others
        if other in named
    ]


def normal(axis: str, value: Scalar) -> Scalar:
    """The value of an axis in the form in which it is kept: variables are text."""
    if axis.startswith("env.") and value is not None:
        return variable_text(value)
    return value
