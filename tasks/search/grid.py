"""Every combination of the axes' values, less what is excluded, the baseline first."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from settings.axes import Scalar, normal
from settings.sweep import Sweep
from tasks.domain.configuration import Trial
from tasks.domain.errors import InputError
from tasks.search.axes import configure

MOST = 100_000
"""Combinations of a grid; so many take a few seconds to plan."""


def plan_trials(sweep: Sweep) -> tuple[Trial, ...]:
    """The sweep's trials; two choices that come to the same configuration are one trial.

    Raises `InputError` for a grid that no night could measure.
    """
    combinations = math.prod(len(values) for values in sweep.axes.values())
    if combinations > MOST:
        fault = f"{combinations:,} combinations are too many for a grid; at most {MOST:,}"
        raise InputError("axes", [fault])
    baseline = baseline_choice(sweep)
    trials: dict[str, Trial] = {}
    for choice in itertools.chain([baseline], _product(sweep)):
        if choice != baseline and any(_matches(choice, rule) for rule in sweep.exclude):
            continue
        configuration = configure(sweep, choice)
        trial = Trial(configuration.digest, choice, configuration, baseline=not trials)
        trials.setdefault(trial.trial_id, trial)
    return tuple(trials.values())


def baseline_choice(sweep: Sweep) -> dict[str, Scalar]:
    """The baseline's value of every axis, in the axes' order."""
    return {
        axis: normal(axis, sweep.baseline[axis]) if axis in sweep.baseline else values[0]
        for axis, values in sweep.axes.items()
    }


def excluded(sweep: Sweep) -> int:
    """How many combinations `exclude` takes out."""
    choices = list(_product(sweep))
    return sum(any(_matches(choice, rule) for rule in sweep.exclude) for choice in choices)


def rounds(trials: Sequence[Trial], repeats: int) -> Iterator[tuple[int, Trial]]:
    """(repeat, trial) in the order of measuring: every trial once, then every trial again.

    Each second round runs backwards, so that a steady drift over the night weighs on no trial
    more than on another. The first round begins with the baseline, whose answers the canary needs.
    """
    for repeat in range(1, repeats + 1):
        order = trials if repeat % 2 else tuple(reversed(trials))
        for trial in order:
            yield repeat, trial


def _product(sweep: Sweep) -> Iterator[dict[str, Scalar]]:
    for values in itertools.product(*sweep.axes.values()):
        yield dict(zip(sweep.axes, values, strict=True))


def _matches(choice: Mapping[str, Scalar], rule: Mapping[str, Scalar]) -> bool:
    return all(choice[axis] == normal(axis, value) for axis, value in rule.items())
