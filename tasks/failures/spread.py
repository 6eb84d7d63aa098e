"""Decide which trials share a pruned trial's fate, so that they need no launch."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from tasks.domain.configuration import ServerConfiguration, Trial, Value
from tasks.domain.diagnosis import Diagnosis
from tasks.failures.catalogue import BY_NAME
from tasks.failures.catalogue.entry import Spread
from tasks.failures.text import regex

Args = Mapping[str, Value]


def spread(diagnosis: Diagnosis, failed: Trial, others: Sequence[Trial]) -> dict[str, str]:
    """Name the trials that must fail as `failed` did, each with the reason.

    Only what is sound: the same model, environment and stack, and flags that are the same or, where
    the failure grows with a flag, further in the same direction.
    """
    mode = BY_NAME.get(diagnosis.mode)
    if mode is None or mode.spread is None:
        return {}
    named = _named_flags(diagnosis, failed.configuration.args)
    reasons = {
        other.trial_id: _shared_fate(mode.spread, named, failed.configuration, other.configuration)
        for other in others
        if _same_ground(mode.spread, failed.configuration, other.configuration)
    }
    return {
        trial_id: f"{diagnosis.mode} already with {failed.label}: {reason}"
        for trial_id, reason in reasons.items()
        if reason
    }


def _same_ground(rule: Spread, one: ServerConfiguration, other: ServerConfiguration) -> bool:
    """Compare what no flag decides."""
    if rule.parsed:
        return one.stack == other.stack
    return (one.model_path, one.stack, dict(one.env)) == (
        other.model_path,
        other.stack,
        dict(other.env),
    )


def _shared_fate(
    rule: Spread, named: frozenset[str], failed: ServerConfiguration, other: ServerConfiguration
) -> str:
    """Say why another configuration fails too, empty if it may not."""
    differing = {
        name
        for name in {*failed.args, *other.args}
        if failed.args.get(name) != other.args.get(name)
    }
    if not differing:
        return "the same configuration"
    if _further(rule.larger, differing, failed.args, other.args, 1):
        return f"{_list(differing)} larger, everything else equal"
    if _further(rule.smaller, differing, failed.args, other.args, -1):
        return f"{_list(differing)} smaller, everything else equal"
    if rule.free and differing <= set(rule.free):
        return f"{_list(differing)} can't change that"
    deciding = {name for name in {*failed.args, *other.args} if _matches(name, rule.decided_by)}
    if rule.decided_by and deciding and not deciding & differing:
        return f"{_list(deciding)} decides, and is the same"
    if rule.any_value and (unknown := {name for name in named if other.args.get(name)}):
        return f"it has {_list(unknown)} too"
    if rule.named and len(named) >= rule.named and not named & differing:
        return f"{_list(named)} decides, and is the same"
    return ""


def _further(
    rule: Iterable[str], differing: set[str], failed: Args, other: Args, direction: int
) -> bool:
    """Tell whether every differing flag went on in the direction that makes it worse."""
    return differing <= set(rule) and all(
        _number(failed.get(name)) is not None
        and _number(other.get(name)) is not None
        and ((_number(other.get(name)) or 0) - (_number(failed.get(name)) or 0)) * direction > 0
        for name in differing
    )


def _number(value: Value) -> float | None:
    """Read a number; True and False are none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether a flag is one of a list of names and families."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _named_flags(diagnosis: Diagnosis, args: Args) -> frozenset[str]:
    """Find the trial's flags that the evidence names, `--with-dashes` or `with_underscores`."""
    said = {
        word.strip("-").replace("-", "_")
        for one in diagnosis.evidence
        for word in regex(r"-{0,2}[A-Za-z][\w-]+").findall(one.text.split("(choose from")[0])
    }
    return frozenset(name for name in args if name in said)


def _list(names: Iterable[str]) -> str:
    """Join names for a sentence."""
    return ", ".join(sorted(names))
