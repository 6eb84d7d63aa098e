"""Find the catalogue's signs in a log of any size, in one pass over pieces of a megabyte.

A literal look for a few dozen alarm words comes first, so that the regular expressions run only
on the handful of lines that hold one: that is what makes a log of 200 MB a matter of seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tasks.domain.diagnosis import Evidence, Phase
from tasks.failures.catalogue import MODES
from tasks.failures.catalogue.entry import Mode, Sign, Variant
from tasks.failures.text import exception_name, is_noise, plain, regex, shown, stamp
from tasks.failures.timeline import Timeline, phase_within

PIECE = 1 << 20
AROUND = 48_000
"""Characters looked at before and after a deciding line: eight interleaved tracebacks."""
ENOUGH = 40
"""Sightings of one sign after which it is no longer looked for; some lines come by thousands."""

ALARMS = (
    *("rror", "ailed", "atal", "xception", "terminate called", "atchdog"),
    *("out of memory", "undefined symbol", "cannot open shared", "not found", "No space left"),
    *("igquit", "SIGQUIT", "xit code", "is dead", "Killed", "fallen off", "Xid ("),
    *("NCCL WARN", "is not compatible", "Assertion", "0 active drivers", "Timed out", "timed out"),
    *("is insufficient", "Bus error", "egmentation fault", "Cuda failure", "ReadTimeout"),
    *("gated repo", "file_baton", ".lock", "custom code which", "nvcc fatal", "ptxas fatal"),
    *("ptxas-blackwell fatal", "multicast", "Multicast", "oom-kill"),
)
"""Each sign's hint holds one of these; a test makes sure."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A sign at its place in the log; `offset` in characters, `stamp` as `MM-DD HH:MM:SS`."""

    mode: Mode
    sign: Sign
    evidence: Evidence
    offset: int
    stamp: str | None
    phase: Phase | None
    groups: Mapping[str, str]
    variant: Variant | None = None
    support: tuple[Evidence, ...] = ()


@dataclass(slots=True)
class Findings:
    """What one pass over a log found."""

    timeline: Timeline = field(default_factory=Timeline)
    sightings: list[Sighting] = field(default_factory=list)
    exceptions: list[tuple[int, Evidence]] = field(default_factory=list)
    last: list[Evidence] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """A line with what stands around it; `number` counts from 1, `start` is where it begins."""

    text: str
    number: int
    start: int
    offset: int
    before: str
    after: str

    @property
    def own_stamp(self) -> str | None:
        """The line's time, or that of the traceback it ends."""
        if own := stamp(self.text):
            return own
        header = self.before.rfind("Traceback (most recent call last)")
        if header < 0 or self.before.count("\n", header) > 60:
            return None
        return stamp(self.before[self.before.rfind("\n", 0, header) + 1 : header])


def pieces(log: str | Iterable[str]) -> Iterator[str]:
    """Cut a text, or join lines (with or without their ends), into pieces of whole lines."""
    if isinstance(log, str):
        begin = 0
        while begin < len(log):
            end = log.find("\n", begin + PIECE) + 1 or len(log)
            yield log[begin:end]
            begin = end
        return
    held: list[str] = []
    size = 0
    for line in log:
        held.append(line if line.endswith("\n") else f"{line}\n")
        size += len(line)
        if size > PIECE:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


def scan(log: str | Iterable[str], given: Phase | None = None) -> Findings:
    """Read a log once; `given` is the phase where the caller knows it."""
    findings = Findings()
    before, number, offset = "", 1, 0
    piece = ""
    for following in pieces(log):
        number = _read(findings, before, piece, following, number, offset, given)
        offset += len(piece)
        before, piece = (before + piece)[-AROUND:], following
    _read(findings, before, piece, "", number, offset, given)
    tail_number = number
    findings.last = _last_lines(before + piece, tail_number - before.count("\n"))
    return findings


def _last_lines(text: str, first_number: int, wanted: int = 3) -> list[Evidence]:
    """Keep the last lines that say something."""
    kept: list[Evidence] = []
    lines = text.split("\n")
    for index in range(len(lines) - 1, -1, -1):
        line = plain(lines[index].rsplit("\r", 1)[-1])
        if line.strip():
            kept.append(Evidence(first_number + index, shown(line)))
        if len(kept) == wanted:
            break
    return kept[::-1]


def _read(
    findings: Findings,
    before: str,
    piece: str,
    following: str,
    number: int,
    offset: int,
    given: Phase | None,
) -> int:
    """Look at one piece between its neighbours; return the number of the next piece's first line."""
    for place in _alarming(before, piece, following, number, offset):
        _look(findings, place, given)
    findings.timeline.read(piece, offset)
    return number + piece.count("\n")


def _alarming(
    before: str, piece: str, following: str, number: int, offset: int
) -> Iterator[_Place]:
    """Yield the lines that hold an alarm word, in order, each carriage return's part by itself."""
    starts = sorted(_line_starts(piece))
    counted = 0
    for start in starts:
        number += piece.count("\n", counted, start)
        counted = start
        end = piece.find("\n", start)
        end = len(piece) if end < 0 else end
        line = plain(piece[start:end])
        for text in line.split("\r"):
            if not is_noise(text):
                lead = piece[max(0, start - AROUND) : start]
                lead = before[-(AROUND - len(lead)) :] + lead if len(lead) < AROUND else lead
                trail = piece[end : end + AROUND]
                trail = trail + following[: AROUND - len(trail)]
                yield _Place(text, number, start, offset + start, lead, trail)


def _line_starts(piece: str) -> set[int]:
    """Find the lines that hold an alarm word."""
    starts: set[int] = set()
    for alarm in ALARMS:
        found = piece.find(alarm)
        while found >= 0:
            starts.add(piece.rfind("\n", 0, found) + 1)
            end = piece.find("\n", found)
            found = piece.find(alarm, end) if end >= 0 else -1
    return starts


def _look(findings: Findings, place: _Place, given: Phase | None) -> None:
    """Note what one line is a sign of, or that it reports an exception."""
    best: Sighting | None = None
    for mode in MODES:
        for sign in mode.signs:
            if sign.hint not in place.text or (best and best.sign.weight <= sign.weight):
                continue
            best = _sighting(findings, mode, sign, place, given) or best
    if best:
        findings.sightings.append(best)
    elif exception_name(place.text) and len(findings.exceptions) < ENOUGH:
        findings.exceptions.append((place.offset, Evidence(place.number, shown(place.text))))


def _sighting(
    findings: Findings, mode: Mode, sign: Sign, place: _Place, given: Phase | None
) -> Sighting | None:
    """Judge one sign on a line that holds its hint."""
    found = regex(sign.pattern).search(place.text)
    if not found or (sign.unless and regex(sign.unless).search(place.text)):
        return None
    key = f"{mode.name} {sign.pattern} {sign.near}"
    if findings.seen.get(key, 0) >= ENOUGH:
        return None
    groups = {name: value for name, value in found.groupdict().items() if value is not None}
    support = _support(sign, place, groups, given)
    if support is None:
        return None
    findings.seen[key] = findings.seen.get(key, 0) + 1
    phase = phase_within(place.before) or findings.timeline.phase
    sighting = Sighting(
        mode,
        sign,
        Evidence(place.number, shown(place.text)),
        place.offset,
        place.own_stamp,
        phase,
        groups,
        support=support,
    )
    return _with_variant(sighting, place)


def _support(
    sign: Sign, place: _Place, groups: Mapping[str, str], given: Phase | None
) -> tuple[Evidence, ...] | None:
    """Find what a sign needs around it; None where it lacks that, or holds what rules it out."""
    if sign.away and regex(sign.away).search(_around(place)):
        return None
    if not sign.near or (given in sign.phases):
        return ()
    near = sign.near
    for name, value in groups.items():
        near = near.replace(f"<<{name}>>", "_?".join(value.lower()))
    found = regex(near).search(_around(place))
    return (_evidence(place, found.start()),) if found else None


def _with_variant(sighting: Sighting, place: _Place) -> Sighting:
    """Choose the way out that the log offers."""
    for variant in sighting.mode.variants:
        if found := regex(variant.when).search(_around(place)):
            groups = {**sighting.groups, **{k: v for k, v in found.groupdict().items() if v}}
            support = (*sighting.support, _evidence(place, found.start()))
            return Sighting(
                sighting.mode,
                sighting.sign,
                sighting.evidence,
                sighting.offset,
                sighting.stamp,
                sighting.phase,
                groups,
                variant,
                support,
            )
    return sighting


def _around(place: _Place) -> str:
    """Join a line with its surroundings, without colours."""
    return plain(f"{place.before}{place.text}{place.after}")


def _evidence(place: _Place, position: int) -> Evidence:
    """Turn a position in a line's surroundings into a numbered line."""
    text = _around(place)
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    number = place.number - plain(place.before).count("\n") + text.count("\n", 0, position)
    return Evidence(number, shown(text[begin : end if end >= 0 else len(text)]))
