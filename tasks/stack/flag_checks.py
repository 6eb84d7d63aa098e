"""Judge a sweep's flags by the launch options that the installed SGLang has.

A flag that every trial has stops the sweep when it is wrong; a value of an axis that is wrong
costs only its own trials, which is worth a warning.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from settings.nearest import suggest
from settings.sweep import ArgValue, Sweep
from tasks.domain.facts import Finding, Flag, Severity, StackFacts
from tasks.domain.sglang import (
    ATTENTION_BACKENDS,
    ATTENTION_FLAGS,
    SPECULATIVE_FLAGS,
    resolve_flag,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the installed SGLang would refuse a flag, and the failure mode that follows."""

    text: str
    fix: str
    mode: str


@dataclass(frozen=True, slots=True)
class Use:
    """A flag with one value as some part of the sweep asks for it."""

    place: str
    flag: str
    value: ArgValue


def check_flags(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Judge what all trials have in common, then each axis."""
    if sweep is None or not facts.options:
        return
    varied = {axis.removeprefix("args.") for axis in sweep.axes}
    for name, value in sweep.server.args.items():
        if name not in varied:
            yield from _common(facts, Use(f"server.args.{name}", name, value))
    for axis in sweep.axes:
        yield from _axis(facts, axis, list(_uses_of(sweep, axis)))


def check_backends(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Attention backends that are not made for these GPUs, as far as we know: a warning."""
    capabilities = sorted({gpu.compute_capability for gpu in facts.gpus} - {""})
    asked: list[tuple[str, list[object]]] = []
    if sweep is not None:
        asked += [(f"server.args.{name}", [value]) for name, value in sweep.server.args.items()]
        asked += [(f"axes.{axis}", list(values)) for axis, values in sweep.axes.items()]
    for place, values in asked:
        if place.rpartition(".")[2] not in ATTENTION_FLAGS:
            continue
        for backend in (value for value in values if value in ATTENTION_BACKENDS):
            least, most = ATTENTION_BACKENDS[str(backend)]
            bad = [c for c in capabilities if not least <= _capability(c) <= most]
            if bad:
                yield Finding(
                    Severity.WARNING,
                    f"{place}: {backend} doesn't run on GPUs of compute capability {bad[0]}",
                    f"it is made for {_dotted(least)} to {_dotted(most)}",
                    "name another backend",
                    "attention-backend-unsupported",
                )


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _uses_of(sweep: Sweep, axis: str) -> Iterator[list[Use]]:
    """What each value of an axis sets; nothing for what isn't a flag, or leaves one out."""
    for value in sweep.axes[axis]:
        place = f"axes.{axis}={value}"
        if axis == "cuda_graph_max_bs" or axis.startswith("args."):
            yield [Use(place, axis.removeprefix("args."), value)]
        elif axis == "speculative_steps" and value:
            how = sweep.speculative
            filled = [how.algorithm, how.draft_model_path, value, how.eagle_topk, int(value) + 1]
            yield [Use(place, n, v) for n, v in zip(SPECULATIVE_FLAGS, filled, strict=True)]
        else:
            yield []


def _common(facts: StackFacts, use: Use) -> Iterator[Finding]:
    fault = fault_of(use.flag, use.value, facts.options)
    if fault is not None:
        yield _finding(Severity.ERROR, use, fault, "every trial's launch would fail")


def _axis(facts: StackFacts, axis: str, values: Sequence[Sequence[Use]]) -> Iterator[Finding]:
    """Warn of each value that is refused; when all are, no trial can be launched."""
    faults = [_first_fault(facts.options, uses) for uses in values]
    hopeless = bool(faults) and all(faults)
    severity = Severity.ERROR if hopeless else Severity.WARNING
    result = "no value of this axis can be launched" if hopeless else "its trials will fail"
    for found in faults:
        if found is not None:
            yield _finding(severity, *found, result)


def _first_fault(options: Sequence[Flag], uses: Iterable[Use]) -> tuple[Use, Fault] | None:
    for use in uses:
        fault = fault_of(use.flag, use.value, options)
        if fault is not None:
            return use, fault
    return None


def _finding(severity: Severity, use: Use, fault: Fault, result: str) -> Finding:
    return Finding(severity, f"{use.place}: {fault.text}", result, fault.fix, fault.mode)


def fault_of(name: str, value: ArgValue, options: Sequence[Flag]) -> Fault | None:
    """Why SGLang would refuse `--name value`, or None; false and null leave the flag out.

    argparse takes any unambiguous beginning of a name, so this does too.
    """
    if value is None or value is False:
        return None
    known = {option: _matching(option, name) for option in options}
    wanted = resolve_flag(name, frozenset(n for option in options for n in option.names))
    exact = [option for option in options if wanted in option.names]
    found = exact or [option for option, names in known.items() if names]
    dashed = f"--{name.replace('_', '-')}"
    if not found:
        names = [n for option in options for n in option.names]
        near = suggest(name, names).removeprefix("; ")
        return Fault(
            f"the installed SGLang has no {dashed}", near or "leave it out", "flag-unknown"
        )
    if len(found) > 1:
        could = ", ".join(sorted(n for option in found for n in known[option]))
        return Fault(f"{dashed} is ambiguous here", f"write one of {could}", "flag-ambiguous")
    return _value_fault(dashed, value, found[0])


def _matching(option: Flag, beginning: str) -> list[str]:
    return [name for name in option.names if name.startswith(beginning)]


def _value_fault(dashed: str, value: ArgValue, option: Flag) -> Fault | None:
    if value is True:
        if option.needs_value:
            return Fault(f"{dashed} needs a value", "give it one", "flag-bad-choice")
        return None
    if not option.takes_value:
        return Fault(f"{dashed} takes no value", "write true or false", "flag-unknown")
    values = [str(item) for item in (value if isinstance(value, list) else [value])]
    bad = [item for item in values if option.choices and item not in option.choices]
    if bad:
        choices = ", ".join(option.choices)
        near = suggest(bad[0], option.choices).removeprefix("; ")
        fix = f"{near} It takes {choices}" if near else f"it takes {choices}"
        return Fault(f"{dashed} {bad[0]} is not a value it takes", fix, "flag-bad-choice")
    return None
