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
_LISTS = ("LD_LIBRARY_PATH",)
"""Variables that list folders: a remedy's come first, what was asked for stays behind them."""
__all__ = ["NextStep", "Prune", "Retry", "Stop", "apply", "inapplicable", "next_step", "spread"]

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


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a trial stands after a failed launch.

    `tried` are the remedies in force in that launch, `made` its number, `stacks_left` the user's
    stacks that come after the one in use. `others_have_stacks` says that this trial asks for its
    stack by name and others for others, `host_serves` that another configuration has served on
    this host and stack tonight.
    """

    tried: tuple[Remedy, ...]
    made: int
    max_attempts: int
    stacks_left: int = 0
    others_have_stacks: bool = False
    host_serves: bool = False


def next_step(diagnosis: Diagnosis, standing: Standing) -> NextStep:
    """Decide what to do after a launch failed.

    Each remedy is used once; two of different kinds are used together; two that undo each other
    end the trial.
    """
    match diagnosis.action:
        case Action.PRUNE:
            return Prune(diagnosis.cause)
        case Action.STOP:
            return _without_remedy(diagnosis, diagnosis.cause, standing)
    remedy, tried = diagnosis.remedy or ONCE_MORE, standing.tried
    if remedy in tried:
        return Prune(f"{diagnosis.cause} It came back in spite of the remedy ({remedy.summary}).")
    if opposite := _opposite(remedy, tried):
        return Prune(f"{diagnosis.cause} Both directions failed ({opposite}).")
    return _retry(diagnosis, (*tried, remedy), standing)


def inapplicable(diagnosis: Diagnosis, unmet: Sequence[str], standing: Standing) -> NextStep:
    """Decide what to do where the host doesn't have what the remedy requires."""
    summary = diagnosis.remedy.summary if diagnosis.remedy else ""
    reason = f"{diagnosis.cause} That can't be done here ({summary}): {'; '.join(unmet)}."
    mode = BY_NAME.get(diagnosis.mode)
    if mode is not None and mode.unmet is Action.PRUNE:
        return Prune(reason)
    return _without_remedy(diagnosis, reason, standing)


def _without_remedy(diagnosis: Diagnosis, reason: str, standing: Standing) -> NextStep:
    """Take the next stack if that may help; otherwise a person is needed."""
    mode = BY_NAME.get(diagnosis.mode)
    if mode is not None and mode.stack_fault and standing.stacks_left:
        return _retry(diagnosis, (*_stack_switches(standing.tried), NEXT_STACK), standing)
    if mode is not None and mode.stack_fault and standing.others_have_stacks:
        return Prune(f"{reason} Trials with other stacks go on.")
    if mode is not None and mode.vague and standing.host_serves:
        return Prune(f"{reason} Other configurations serve on this host, so the sweep goes on.")
    return Stop(reason)


def _retry(diagnosis: Diagnosis, remedies: tuple[Remedy, ...], standing: Standing) -> Retry | Prune:
    """Retry while launches are left."""
    if standing.made >= standing.max_attempts:
        return Prune(f"{diagnosis.cause} Given up after {standing.made} launches.")
    return Retry(remedies)


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
        configuration = replace(
            configuration, args=args, env=_joined(configuration.env, remedy.env)
        )
    return configuration


def _joined(env: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Set a remedy's variables, those that list folders before what they listed."""
    kept = {
        name: ":".join([value, env[name]]) if name in _LISTS and env.get(name) else value
        for name, value in changes.items()
    }
    return {**env, **kept}


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
