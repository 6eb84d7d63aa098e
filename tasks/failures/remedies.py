"""Decide what follows a diagnosis, and apply remedies to a configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.domain.configuration import ServerConfiguration, Value
from tasks.domain.diagnosis import Action, Diagnosis, Remedy
from tasks.failures.catalogue import BY_NAME
from tasks.failures.spread import spread

DEFAULT_MEM_FRACTION = 0.88
"""SGLang's own `--mem-fraction-static` on one GPU where nothing was said; it varies with size."""
_FRACTIONS = {"mem_fraction_static": (0.1, 0.95)}
__all__ = ["NextStep", "Prune", "Retry", "Stop", "apply", "next_step", "spread"]

ONCE_MORE = Remedy("try once more")
NEXT_STACK = Remedy("take the next software stack", another_stack=True)


@dataclass(frozen=True, slots=True)
class Retry:
    """Launch again with all of these remedies in force.

    As many of them have `another_stack` as stacks of the host's list are to be skipped.
    """

    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True)
class Prune:
    """Give this configuration up; the sweep goes on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the sweep on this host: a person is needed."""

    reason: str


NextStep = Retry | Prune | Stop


def next_step(
    diagnosis: Diagnosis,
    tried: Sequence[Remedy],
    attempts_made: int,
    max_attempts: int,
    stacks_left: int = 0,
) -> NextStep:
    """Decide what to do after attempt number `attempts_made` failed.

    `tried` are the remedies in force in that attempt, `stacks_left` the user's stacks that come
    after the one in use. Each remedy is used once; two of different kinds are used together; two
    that undo each other end the trial.
    """
    match diagnosis.action:
        case Action.PRUNE:
            return Prune(diagnosis.cause)
        case Action.STOP if not (_of_the_stack(diagnosis) and stacks_left):
            return Stop(diagnosis.cause)
        case Action.STOP:
            return _retry(
                diagnosis, _stack_switches(tried), NEXT_STACK, attempts_made, max_attempts
            )
    remedy = diagnosis.remedy or ONCE_MORE
    if remedy in tried:
        return Prune(f"{diagnosis.cause} It came back in spite of the remedy ({remedy.summary}).")
    if opposite := _opposite(remedy, tried):
        return Prune(f"{diagnosis.cause} Both directions failed ({opposite}).")
    return _retry(diagnosis, tuple(tried), remedy, attempts_made, max_attempts)


def _retry(
    diagnosis: Diagnosis,
    kept: tuple[Remedy, ...],
    remedy: Remedy,
    attempts_made: int,
    max_attempts: int,
) -> Retry | Prune:
    """Retry while launches are left."""
    if attempts_made >= max_attempts:
        return Prune(f"{diagnosis.cause} Given up after {attempts_made} launches.")
    return Retry((*kept, remedy))


def _of_the_stack(diagnosis: Diagnosis) -> bool:
    """Tell whether another software stack may not have this failure."""
    mode = BY_NAME.get(diagnosis.mode)
    return mode is not None and mode.stack_fault


def _stack_switches(tried: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Keep only the switches of stack: the other remedies cured the stack that is left behind."""
    return tuple(remedy for remedy in tried if remedy.another_stack)


def _opposite(remedy: Remedy, tried: Sequence[Remedy]) -> str:
    """Name what a remedy would undo of an earlier one, empty if nothing."""
    for earlier in tried:
        for name, factor in remedy.scale_args.items():
            if (earlier.scale_args.get(name, 1.0) - 1.0) * (factor - 1.0) < 0:
                return f"{name} was scaled by {earlier.scale_args[name]:g}, now by {factor:g}"
        for ours, theirs in ((remedy.args, earlier.args), (remedy.env, earlier.env)):
            if name := _contradiction(ours, theirs):
                return f"{name} was {theirs[name]}, now {ours[name]}"
    return ""


def _contradiction(ours: Mapping[str, Value], theirs: Mapping[str, Value]) -> str:
    """Name a setting that two remedies want differently."""
    return next((name for name in ours if name in theirs and ours[name] != theirs[name]), "")


def apply(configuration: ServerConfiguration, remedies: Sequence[Remedy]) -> ServerConfiguration:
    """Put remedies' settings into a configuration, in order.

    Only what a configuration holds: clean-ups, ports, waiting and the choice of the stack are the
    launcher's.
    """
    for remedy in remedies:
        args = {
            remedy.rename_args.get(name, name): value for name, value in configuration.args.items()
        }
        args |= remedy.args
        args |= {name: _scaled(name, args, factor) for name, factor in remedy.scale_args.items()}
        configuration = replace(configuration, args=args, env={**configuration.env, **remedy.env})
    return configuration


def _scaled(name: str, args: Mapping[str, Value], factor: float) -> Value:
    """Scale a numeric flag; what isn't set and has no known default stays unset."""
    value = args.get(name)
    if value is None and name == "mem_fraction_static":
        value = DEFAULT_MEM_FRACTION
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int) and name not in _FRACTIONS:
        return max(1, int(value * factor))
    low, high = _FRACTIONS.get(name, (float("-inf"), float("inf")))
    return round(min(high, max(low, value * factor)), 3)
