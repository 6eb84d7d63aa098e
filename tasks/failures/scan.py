"""Find the catalogue's signs in a log of any size, in one pass.

The lines that a busy server writes by the million are put aside first, then those without an
alarm word, so that regular expressions run on a handful: a log of 200 MB takes a few seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tasks.domain.diagnosis import Evidence, Phase
from tasks.failures.catalogue import MODES
from tasks.failures.catalogue.entry import Mode, Sign, Variant
from tasks.failures.text import (
    exception_name,
    is_noise,
    plain,
    raised,
    regex,
    shape,
    shown,
    stamp,
    warns,
)
from tasks.failures.timeline import BUSY, MARKS, Timeline

AROUND = 400
"""Lines looked at before and after a deciding line: eight interleaved tracebacks."""
PIECE = 8192
WRAPPED = 72
"""A terminal's least width, in characters: a shorter line wasn't broken."""
ENOUGH = 20
"""How often a line of one shape is looked at; some come by the thousand."""
SHAPES = 10_000
LONGEST_DULL = 400
_DIGITS = str.maketrans("", "", "0123456789")
"""Lines that differ in nothing else are alike: no alarm and no mark has a digit."""

ALARMS = (
    *("rror", "RROR", "xception", "ailed", "ailure", "Fail", "atal", "FAILED", "CRITICAL", "WARN"),
    *("terminate called", "atchdog", "out of memory", "igquit", "SIGQUIT", "xit code", "is dead"),
    *("Killed", "oom-kill", "fault", "Xid", "fallen off", "imed out", "imeout", "ssertion"),
    *("undefined symbol", "cannot ", "Cannot ", "Could not", "nable to", "not found", "is not "),
    *("not support", "only support", "nsupported", "does not", "insufficient", "nvalid", "denied"),
    *("mismatch", "No space", "custom code", "gated", "baton", ".lock", "ulticast", "drivers"),
    *("too old", "nrecognized", "Removed server", "unbalanced", "incomplete", "corrupt", "in use"),
    *("connect to", "requires", "divisible", "hang", "stuck", "not ready", "giving up"),
)
"""A line without one of these is a sign of nothing."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A sign at its place in the log; `stamp` is the time as `MM-DD HH:MM:SS`."""

    mode: Mode
    sign: Sign
    evidence: Evidence
    stamp: str | None
    phase: Phase | None
    groups: Mapping[str, str]
    variant: Variant | None = None
    support: tuple[Evidence, ...] = ()

    @property
    def weak(self) -> bool:
        """Whether it is a warning, which may come true or not."""
        return self.sign.weak or warns(self.evidence.text)


@dataclass(slots=True)
class Findings:
    """What one pass over a log found; `dull` are lines, without digits, that say nothing."""

    timeline: Timeline = field(default_factory=Timeline)
    sightings: list[Sighting] = field(default_factory=list)
    exceptions: list[Evidence] = field(default_factory=list)
    last: list[Evidence] = field(default_factory=list)
    shapes: dict[str, int] = field(default_factory=dict)
    dull: set[str] = field(default_factory=set)


class Place:
    """A line, numbered from 1, with what stands around it; colours are taken out."""

    def __init__(self, text: str, number: int, lines: Sequence[str], index: int) -> None:
        self.text = text
        self.number = number
        self._lines = lines
        self._index = index

    @cached_property
    def before(self) -> str:
        """The lines before it, each with its end."""
        lines = self._lines[max(0, self._index - AROUND) : self._index]
        return plain("".join(f"{line}\n" for line in lines))

    @cached_property
    def around(self) -> str:
        """The lines before it, itself, and those after it."""
        after = self._lines[self._index + 1 : self._index + 1 + AROUND]
        return self.before + self.text + plain("".join(f"\n{line}" for line in after))

    @property
    def stamp(self) -> str | None:
        """The line's time, or that of the traceback it ends."""
        if own := stamp(self.text):
            return own
        header = self.before.rfind("Traceback (most recent call last)")
        if header < 0 or self.before.count("\n", header) > 60:
            return None
        return stamp(self.before[self.before.rfind("\n", 0, header) + 1 : header])

    @property
    def unwrapped(self) -> "Place | None":
        """The line joined with the next, where a terminal may have broken it; None elsewhere."""
        if len(self.text) < WRAPPED or self._index + 1 >= len(self._lines):
            return None
        rest = plain(self._lines[self._index + 1])
        if not rest or rest[0] in " \t[":
            return None
        return Place(self.text + rest, self.number, self._lines, self._index)

    def evidence(self, position: int) -> Evidence:
        """Turn a position in `around` into a numbered line."""
        begin = self.around.rfind("\n", 0, position) + 1
        end = self.around.find("\n", position)
        text = self.around[begin : end if end >= 0 else len(self.around)]
        number = self.number - self.before.count("\n") + self.around.count("\n", 0, position)
        return Evidence(number, shown(text))


def pieces(log: str | Iterable[str]) -> Iterator[list[str]]:
    """Cut a text, or lines with or without their ends, into lists of lines without ends."""
    if isinstance(log, str):
        begin = 0
        while begin < len(log):
            end = log.find("\n", begin + (1 << 20))
            end = len(log) if end < 0 else end
            yield log[begin:end].split("\n")
            begin = end + 1
        return
    held: list[str] = []
    for line in log:
        held.append(line.rstrip("\n"))
        if len(held) == PIECE:
            yield held
            held = []
    yield held


def scan(log: str | Iterable[str], given: Phase | None = None) -> Findings:
    """Read a log once; `given` is the phase where the caller knows it."""
    findings = Findings()
    before: list[str] = []
    piece: list[str] = []
    number = 1
    for following in pieces(log):
        _read(findings, before, piece, following, number, given)
        number += len(piece)
        before, piece = [*before, *piece][-AROUND:], following
    _read(findings, before, piece, [], number, given)
    findings.last = _last_lines([*before, *piece], number - len(before))
    return findings


def _last_lines(lines: list[str], first_number: int, wanted: int = 3) -> list[Evidence]:
    """Keep the last lines that say something."""
    kept: list[Evidence] = []
    for index in range(len(lines) - 1, -1, -1):
        if text := plain(lines[index].rstrip("\r").rsplit("\r", 1)[-1]).strip():
            kept.append(Evidence(first_number + index, shown(text)))
        if len(kept) == wanted:
            break
    return kept[::-1]


def _read(
    findings: Findings,
    before: list[str],
    piece: list[str],
    following: list[str],
    number: int,
    given: Phase | None,
) -> None:
    """Look at one piece between its neighbours; `number` is that of its first line."""
    if not piece:
        return
    lines = [*before, *piece, *following[:AROUND]]
    first = len(before)
    one, two, three, four = BUSY
    for index, line in enumerate(piece):
        if one in line or two in line or three in line or four in line:
            findings.timeline.busy(number + index)
            continue
        kind = line.translate(_DIGITS)
        if kind in findings.dull:
            continue
        alarming = any(alarm in line for alarm in ALARMS)
        if alarming:
            _alarm(findings, line, number + index, lines, first + index, given)
        if any(mark in line for mark in MARKS):
            findings.timeline.read(line, number + index)
        elif not alarming and len(line) <= LONGEST_DULL and len(findings.dull) < SHAPES:
            findings.dull.add(kind)


def _alarm(
    findings: Findings,
    line: str,
    number: int,
    lines: Sequence[str],
    index: int,
    given: Phase | None,
) -> None:
    """Look at a line with an alarm word, each carriage return's part by itself."""
    text = plain(line)
    for part in text.split("\r") if "\r" in text else (text,):
        kind = shape(part)
        seen = findings.shapes.get(kind, 0)
        if seen >= ENOUGH or is_noise(part):
            continue
        if seen or len(findings.shapes) < SHAPES:
            findings.shapes[kind] = seen + 1
        _look(findings, Place(part, number, lines, index), given)


def _look(findings: Findings, place: Place, given: Phase | None) -> None:
    """Note what one line is a sign of, or that it reports an exception."""
    best = _best(findings, place, given)
    if best is None and (whole := place.unwrapped):
        best = _best(findings, whole, given)
    if best:
        findings.sightings.append(best)
    elif exception_name(place.text) and len(findings.exceptions) < ENOUGH:
        findings.exceptions.append(Evidence(place.number, shown(place.text)))


def _best(findings: Findings, place: Place, given: Phase | None) -> Sighting | None:
    """Find the sign that explains most on one line, the catalogue's first among equals."""
    best: Sighting | None = None
    for mode in MODES:
        for sign in mode.signs:
            if best is None or sign.weight < best.sign.weight:
                best = _sighting(findings, mode, sign, place, given) or best
    return best


def _sighting(
    findings: Findings, mode: Mode, sign: Sign, place: Place, given: Phase | None
) -> Sighting | None:
    """Judge one sign on one line."""
    found = regex(sign.pattern).search(place.text)
    if not found or (sign.unless and regex(sign.unless).search(place.text)):
        return None
    groups = {name: value for name, value in found.groupdict().items() if value is not None}
    if (sign.raised and not raised(place.text)) or (sign.holds and not sign.holds(groups)):
        return None
    support = _support(sign, place, groups, given)
    if support is None:
        return None
    evidence = Evidence(place.number, shown(place.text))
    phase = findings.timeline.phase
    return _with_variant(
        Sighting(mode, sign, evidence, place.stamp, phase, groups, support=support), place
    )


def _support(
    sign: Sign, place: Place, groups: Mapping[str, str], given: Phase | None
) -> tuple[Evidence, ...] | None:
    """Find what a sign needs around it; None where it lacks that, or holds what rules it out."""
    if sign.away and regex(sign.away).search(place.around):
        return None
    if not sign.near or given in sign.phases:
        return ()
    near = sign.near
    for name, value in groups.items():
        near = near.replace(f"<<{name}>>", "_?".join(value.lower()))
    found = regex(near).search(place.around)
    if found is None:
        return None
    return (place.evidence(found.start()),) if found[0] else ()


def _with_variant(sighting: Sighting, place: Place) -> Sighting:
    """Choose the way out that the log offers."""
    for variant in sighting.mode.variants:
        if variant.line and not regex(variant.line).search(place.text):
            continue
        if found := regex(variant.when).search(place.around):
            offered = {name: value for name, value in found.groupdict().items() if value}
            support = (*sighting.support, place.evidence(found.start()))
            groups = {**sighting.groups, **offered}
            return replace(sighting, groups=groups, variant=variant, support=support)
    return sighting
