"""What an entry of the catalogue of failure modes is made of.

An entry is data: it says which texts decide, what misleads, and what is to be done. The engine in
`tasks.failures.scan` and `tasks.failures.diagnosis` knows no mode by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tasks.domain.diagnosis import Action, Phase, Remedy


class Weight(IntEnum):
    """How far a sign explains a failure; the lower one wins wherever in the log it stands."""

    CAUSE = 0
    SYMPTOM = 1
    ECHO = 2


@dataclass(frozen=True, slots=True)
class Sign:
    """A text that decides for a mode.

    `pattern` and `unless` are regular expressions searched in one line, `near` and `away` in the
    lines around it (a few hundred each way, so that interleaved ranks don't push them out). In
    `near`, `<<name>>` stands for a group of the pattern, whatever its case and underscores. A sign
    that must be `raised` counts only on a line that reports an error: its words are also said in
    passing. `holds` judges the pattern's groups where a regular expression can't. `phases` stands
    in for `near` where the caller knows the phase. A sign that is `weak` is a warning that kills
    most servers but not all: it counts only if the server didn't become ready after it.
    """

    pattern: str
    unless: str = ""
    near: str = ""
    away: str = ""
    raised: bool = False
    holds: Callable[[Mapping[str, str]], bool] | None = None
    phases: tuple[Phase, ...] = ()
    weight: Weight = Weight.CAUSE
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way out where the log offers one: `when` is searched around the deciding line.

    `line`, if any, must be found in that line itself. The named groups, like those of the sign,
    fill the `{placeholders}` of the remedy.
    """

    when: str
    action: Action
    remedy: Remedy | None = None
    explanation: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """Which other trials share a pruned trial's fate.

    `larger` and `smaller` name numeric flags: everything else equal, a value further that way
    fails too. `decided_by` names flags (a trailing `*` means a family): trials that agree on all
    of them fail too, whatever else they vary. `free` names flags that can't matter: trials that
    differ in nothing else fail too. With `named`, the flags that the evidence itself names decide,
    if it names at least so many of the trial's. All these compare trials of one model, environment
    and stack; what the argument parser refuses (`parsed`) needs the same stack only, and an unknown
    flag (`any_value`) fails with any value.
    """

    larger: tuple[str, ...] = ()
    smaller: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    named: int = 0
    parsed: bool = False
    any_value: bool = False


@dataclass(frozen=True, slots=True)
class Mode:
    """A named way in which a launch or a run fails.

    `explanation` is the cause and the cure for a person, short enough for a state's message.
    Where the log says nothing, `exit_codes` decide, or the phase in which a launch hangs
    (`stalls`), or the words with which the log of a hang breaks off (`ends`).
    `check` says what must hold on the host before the remedy is tried, and `unmet` is the action
    where it doesn't. `stack_fault` means that another software stack may not have it. `vague` means
    that the log doesn't say why: where the host serves another configuration, it isn't at fault.
    """

    name: str
    explanation: str
    action: Action
    phases: tuple[Phase, ...]
    signs: tuple[Sign, ...] = ()
    remedy: Remedy | None = None
    variants: tuple[Variant, ...] = ()
    spread: Spread | None = None
    exit_codes: tuple[int, ...] = ()
    stalls: tuple[Phase, ...] = ()
    ends: str = ""
    check: str = ""
    unmet: Action = Action.STOP
    stack_fault: bool = False
    vague: bool = False
