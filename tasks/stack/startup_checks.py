"""Judge what the interpreter does before it runs anything: start-up files and what they set."""

from collections.abc import Iterator

from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackFacts
from tasks.domain.sglang import NCCL_CHANNELS


def check_startup(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """A sitecustomize that raises leaves undone whatever it was to set for every process."""
    if facts.startup:
        summary = "the stack's sitecustomize raises, so that what it sets is not set"
        yield Finding(Severity.WARNING, summary, facts.startup, "mend or remove it")


def check_overrides(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """A variable that a start-up file sets is what a server sees, whatever the sweep asks for."""
    if sweep is None:
        return
    where = ", ".join(facts.startup_files.values()) or "a start-up file"
    for name, value in facts.startup_sets.items():
        forced = name in facts.startup_forced
        axes = [axis for axis in sweep.axes if forced and name in _variables_of(axis)]
        places = [f"axes.{axis}" for axis in axes]
        asked = sweep.server.env.get(name)
        if asked is not None and asked != value:
            places.insert(0, f"server.env.{name}")
        if places:
            yield Finding(
                Severity.WARNING,
                f"{', '.join(places)}: {where} sets {name} to {value!r} in every process",
                "every trial would be measured with that value",
                f"take {name} out of {where}, or out of the sweep",
            )


def _variables_of(axis: str) -> tuple[str, ...]:
    if axis == "nccl_channels":
        return NCCL_CHANNELS
    return (axis.removeprefix("env."),) if axis.startswith("env.") else ()


def check_preload(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """What is set at the start belongs to the numbers: it is told, though it is no fault."""
    if facts.startup_sets:
        names = ", ".join(f"{name}={value}" for name, value in facts.startup_sets.items())
        where = ", ".join(facts.startup_files.values()) or "a .pth file"
        yield Finding(Severity.INFO, f"start-up files set variables: {where}", names[:500])
