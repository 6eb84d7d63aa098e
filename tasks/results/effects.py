"""What each axis does to the objective, and which axes do something else together than apart.

Worked out from trials that differ in nothing else, so that an incomplete grid (pruned, excluded or
failed trials) biases nothing: what has no counterpart is left out, and the number of pairs is told.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult, TrialVerdict, Value
from tasks.results.cells import Cell, values
from tasks.results.selection import MARGIN, Selection, as_gain
from tasks.results.statistics import (
    Ratio,
    Term,
    contrast,
    contrast_p_value,
    holm_confidences,
)
from tasks.results.wording import value_text, varying_axes

MOST_INTERACTIONS = 10
"""The strongest that are told; weaker ones help nobody to decide."""

_Runs = Mapping[tuple[str, ...], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of an axis, against the value that the baseline has."""

    axis: str
    value: Value
    reference: Value

    def __str__(self) -> str:
        """Name the change: `nccl_channels 8 → 16`."""
        return f"{self.axis} {value_text(self.reference)} → {value_text(self.value)}"


@dataclass(frozen=True, slots=True)
class MainEffect:
    """What changing one axis does, all else equal: above 1 is better.

    `gain` is the geometric mean over the pairs of trials that differ in nothing else; `worst` and
    `best` are the least and the greatest ratio among them.
    """

    setting: Setting
    gain: Ratio
    pairs: int
    worst: float
    best: float


@dataclass(frozen=True, slots=True)
class Interaction:
    """What two changes do together beyond what each does alone: above 1 is better.

    `gain` is the geometric mean of y(both) y(none) / (y(first) y(second)) over the squares of four
    trials that differ in nothing else. `certain` says that the intervals of all interactions
    together, at 95 % by Holm's procedure, leave 1 out of this one.
    """

    first: Setting
    second: Setting
    gain: Ratio
    squares: int
    certain: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """The main effects in the order of the axes, and the strongest interactions first."""

    main: tuple[MainEffect, ...] = ()
    interactions: tuple[Interaction, ...] = ()


NO_EFFECTS = Effects()


def effects(sweep: Sweep, trials: Sequence[TrialResult], selection: Selection) -> Effects:
    """Work out what the axes do to the objective among the trials that were measured as asked.

    Trials that a remedy altered are left out: they aren't what their axes say.
    """
    used = [r for r in trials if r.verdict is TrialVerdict.MEASURED and not r.altered]
    axes = varying_axes(result.trial.axes for result in used)
    found = _runs(used, axes, selection.cell, selection.metric)
    settings = [_settings(name, used, selection) for name in axes]
    return Effects(
        tuple(_main(sweep, found, settings, selection)),
        tuple(_interactions(sweep, found, settings, selection)),
    )


def _runs(
    used: Sequence[TrialResult], axes: Sequence[str], cell: Cell, metric: str
) -> dict[tuple[str, ...], Sequence[float]]:
    """The objective's runs of each trial, by its values of the axes that vary."""
    keyed = ((_key(result, axes), values(result, cell, metric)) for result in used)
    return {key: runs for key, runs in keyed if runs and min(runs) > 0}


def _key(result: TrialResult, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(_text(result.trial.axes.get(name)) for name in axes)


def _text(value: Value) -> str:
    return json.dumps(value)


def _settings(axis: str, used: Sequence[TrialResult], selection: Selection) -> tuple[Setting, ...]:
    """Each value of an axis but the baseline's, or but the first where no baseline has one."""
    baseline = selection.baseline
    seen = {_text(r.trial.axes[axis]): r.trial.axes[axis] for r in used if axis in r.trial.axes}
    reference = next(iter(seen.values()))
    if baseline is not None and axis in baseline.trial.axes:
        reference = baseline.trial.axes[axis]
    others = (value for text, value in seen.items() if text != _text(reference))
    return tuple(Setting(axis, value, reference) for value in others)


def _main(
    sweep: Sweep,
    found: _Runs,
    settings: Sequence[Sequence[Setting]],
    selection: Selection,
) -> Iterator[MainEffect]:
    for place, of_axis in enumerate(settings):
        for setting in of_axis:
            pairs = [
                (found[key], found[other])
                for key in found
                if key[place] == _text(setting.value)
                and (other := _moved(key, place, setting.reference)) in found
            ]
            terms = _averaged([[(1, mine), (-1, theirs)] for mine, theirs in pairs])
            gain = as_gain(sweep, contrast(terms, noise=selection.noise))
            each = [as_gain(sweep, contrast([(1, a), (-1, b)])) for a, b in pairs]
            ratios = [one.value for one in each if one is not None]
            if gain is not None:
                yield MainEffect(setting, gain, len(pairs), min(ratios), max(ratios))


def _interactions(
    sweep: Sweep,
    found: _Runs,
    settings: Sequence[Sequence[Setting]],
    selection: Selection,
) -> list[Interaction]:
    """The interactions that matter, the strongest first; the certainty is that of all that are."""
    squares = [
        (one, other, terms)
        for first, second in combinations(range(len(settings)), 2)
        for one in settings[first]
        for other in settings[second]
        if (terms := list(_squares(found, (first, one), (second, other))))
    ]
    averaged = [_averaged(terms) for _, _, terms in squares]
    chances = [contrast_p_value(terms, selection.noise) for terms in averaged]
    levels = holm_confidences(chances)
    told = []
    for (one, other, each), mean, chance, level in zip(
        squares, averaged, chances, levels, strict=True
    ):
        gain = as_gain(sweep, contrast(mean, noise=selection.noise))
        if gain is not None and _size(gain) >= MARGIN:
            certain = chance is not None and chance <= 1 - level
            told.append(Interaction(one, other, gain, len(each), certain))
    told.sort(key=lambda one: (not one.certain, -_size(one.gain)))
    return told[:MOST_INTERACTIONS]


def _squares(
    found: _Runs, first: tuple[int, Setting], second: tuple[int, Setting]
) -> Iterator[list[Term]]:
    """Four trials each: both changes, neither, and each alone."""
    (place, one), (other_place, other) = first, second
    for both in found:
        if (both[place], both[other_place]) != (_text(one.value), _text(other.value)):
            continue
        alone = _moved(both, other_place, other.reference)
        other_alone = _moved(both, place, one.reference)
        none = _moved(alone, place, one.reference)
        if {alone, other_alone, none} <= found.keys():
            corners = ((1, both), (1, none), (-1, alone), (-1, other_alone))
            yield [(factor, found[key]) for factor, key in corners]


def _moved(key: tuple[str, ...], place: int, value: Value) -> tuple[str, ...]:
    return (*key[:place], _text(value), *key[place + 1 :])


def _averaged(groups: Sequence[Sequence[Term]]) -> list[Term]:
    return [(factor / len(groups), runs) for group in groups for factor, runs in group]


def _size(gain: Ratio) -> float:
    """How far a ratio is from 1, whichever way."""
    return max(gain.value, 1 / gain.value) - 1 if gain.value else float("inf")
