"""Name the cause of a failed launch or run from its log, its exit status and its phase."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tasks.domain.diagnosis import Action, Diagnosis, Evidence, Phase, Remedy
from tasks.failures.catalogue import BY_NAME, MODES
from tasks.failures.catalogue.entry import Mode, Weight
from tasks.failures.scan import Findings, Sighting, scan
from tasks.failures.text import regex

UNKNOWN = "unknown"
_DOCS = "docs/failures.md"
_PATIENCE = (0, -2, -15, 130, 143)
"""Exit codes of a server that ended because it was asked to."""
_ECHOES = ("EOFError", "KeyboardInterrupt", "SystemExit", "CancelledError")


def diagnose(
    log: str, exit_code: int | None, phase: Phase | None = None, *, stalled: bool = False
) -> Diagnosis | None:
    """Name the cause of a failure, None for a healthy log.

    `exit_code` is None where the process lives or nobody knows; a signal is negative, as Python
    has it, or 128 more, as shells have it. `phase` is where the server was, None to read it from
    the log. `stalled` says that a living launch stopped making progress in that phase.
    """
    return diagnose_lines(log, exit_code, phase, stalled=stalled)


def diagnose_lines(
    lines: str | Iterable[str],
    exit_code: int | None,
    phase: Phase | None = None,
    *,
    stalled: bool = False,
) -> Diagnosis | None:
    """Do the same for lines that come one by one, in memory that doesn't grow with the log."""
    return judge_lines(lines, exit_code, phase, stalled=stalled).diagnosis


@dataclass(frozen=True, slots=True)
class Judgement:
    """A diagnosis, None for no failure; `phase` is None where no line was a server's.

    `sighting` is what decided, None where no line did.
    """

    diagnosis: Diagnosis | None
    phase: Phase | None
    sighting: Sighting | None = None


def judge_lines(
    lines: str | Iterable[str],
    exit_code: int | None,
    phase: Phase | None = None,
    *,
    stalled: bool = False,
) -> Judgement:
    """Diagnose, and tell how far the log shows the server to have come."""
    findings = scan(lines, phase)
    where = phase or findings.timeline.phase
    deciding = _cause(findings)
    if deciding is None and not _unexplained(findings):
        deciding = next(iter(_echoed(findings)), None)
    if deciding is not None:
        return Judgement(_explained(deciding, phase), where, deciding)
    return Judgement(_without_a_sign(findings, exit_code, where, stalled=stalled), where)


def _without_a_sign(
    findings: Findings, exit_code: int | None, where: Phase | None, *, stalled: bool
) -> Diagnosis | None:
    """Judge by exit code, phase and the log's end, where no line is a sign of anything."""
    if mode := _wordless(findings, exit_code, where, stalled):
        return _of(mode, where or mode.phases[0], tuple(findings.last))
    if _failed(findings, exit_code, stalled):
        return _unknown(findings, exit_code, where)
    return None


def _current(findings: Findings) -> list[Sighting]:
    """Leave out what an earlier launch wrote into the same log, and warnings that came true not."""
    timeline = findings.timeline
    return [
        sighting
        for sighting in findings.sightings
        if sighting.evidence.line > timeline.launched
        and not (sighting.weak and timeline.ready > sighting.evidence.line)
    ]


def _cause(findings: Findings) -> Sighting | None:
    """Choose the sighting that explains most; of equals the earliest in time, across ranks."""
    best: Sighting | None = None
    for sighting in _current(findings):
        if sighting.sign.weight < Weight.ECHO and (best is None or _before(sighting, best)):
            best = sighting
    return best


def _before(one: Sighting, other: Sighting) -> bool:
    """Tell whether one sighting explains the other; lines without a time keep the log's order."""
    if one.sign.weight != other.sign.weight:
        return one.sign.weight < other.sign.weight
    return bool(one.stamp and other.stamp and one.stamp < other.stamp)


def _echoed(findings: Findings) -> list[Sighting]:
    """List the echoes of a failure that has no other word."""
    return [one for one in _current(findings) if one.sign.weight is Weight.ECHO]


def _unexplained(findings: Findings) -> list[Evidence]:
    """List the exceptions that no mode explains."""
    return [
        evidence
        for evidence in findings.exceptions
        if evidence.line > findings.timeline.launched
        and not any(echo in evidence.text for echo in _ECHOES)
    ]


def _wordless(
    findings: Findings, exit_code: int | None, where: Phase | None, stalled: bool
) -> Mode | None:
    """Find the mode of a failure without a word: by exit code, by the phase of a hang."""
    if not stalled and findings.exceptions and _failed(findings, exit_code, stalled):
        return None
    if exit_code is not None:
        return next((mode for mode in MODES if exit_code in mode.exit_codes), None)
    if mode := _broken_off(findings):
        return mode
    if stalled or where is Phase.DISTRIBUTED:
        # A log that ends between "Init torch distributed begin" and its end is a hang by itself:
        # that step takes seconds.
        return next((mode for mode in MODES if where in mode.stalls), None)
    return None


def _broken_off(findings: Findings) -> Mode | None:
    """Find the mode of a log that ends in the middle of something that takes seconds when well."""
    return next(
        (
            mode
            for evidence in findings.last
            if evidence.line > findings.timeline.alive
            for mode in MODES
            if mode.ends and regex(mode.ends).search(evidence.text)
        ),
        None,
    )


def _failed(findings: Findings, exit_code: int | None, stalled: bool) -> bool:
    """Judge whether there was a failure at all, where no sign decides."""
    if stalled or exit_code not in (None, *_PATIENCE) or _echoed(findings):
        return True
    fatal = [evidence.line for evidence in _unexplained(findings)]
    return exit_code is None and bool(fatal) and max(fatal) > findings.timeline.alive


def _explained(sighting: Sighting, given: Phase | None) -> Diagnosis:
    """Turn the deciding sighting into a diagnosis."""
    mode = sighting.mode
    phase = given or sighting.phase
    if phase is None or (given is None and phase not in mode.phases):
        phase = mode.phases[0]
    evidence = tuple(sorted({sighting.evidence, *sighting.support}, key=lambda one: one.line))
    diagnosis = _of(mode, phase, evidence)
    if variant := sighting.variant:
        diagnosis = replace(
            diagnosis,
            action=variant.action,
            remedy=variant.remedy,
            explanation=variant.explanation or mode.explanation,
        )
    if diagnosis.remedy is None:
        return diagnosis
    return replace(diagnosis, remedy=filled(diagnosis.remedy, sighting.groups))


def _of(mode: Mode, phase: Phase, evidence: tuple[Evidence, ...]) -> Diagnosis:
    """Say what the catalogue says of a mode."""
    return Diagnosis(
        mode=mode.name,
        phase=phase,
        action=mode.action,
        explanation=mode.explanation,
        remedy=mode.remedy,
        evidence=evidence,
        docs=f"{_DOCS}#{mode.name}",
    )


def diagnosis_of(name: str, phase: Phase, evidence: tuple[Evidence, ...] = ()) -> Diagnosis:
    """Say what the catalogue says of a mode that somebody saw without a log.

    A launcher that finds another server on its port knows `port-in-use-http`, a check of the stack
    knows the mode that it foresees.
    """
    return _of(BY_NAME[name], phase, evidence)


def _unknown(findings: Findings, exit_code: int | None, where: Phase | None) -> Diagnosis:
    """Show the most telling lines of a failure that no mode explains."""
    telling = _unexplained(findings)
    lines = {one.line: one for one in (*telling[:3], *telling[-1:], *findings.last)}
    headline = telling[0].text if telling else (findings.last[-1].text if findings.last else "")
    ending = "" if exit_code is None else f". The server's exit code was {exit_code}."
    return Diagnosis(
        mode=UNKNOWN,
        phase=where or Phase.START,
        action=Action.PRUNE,
        explanation=f"No known failure explains it: {headline[:160]}{ending}",
        evidence=tuple(lines[number] for number in sorted(lines)),
        docs=f"{_DOCS}#{UNKNOWN}",
    )


def filled(remedy: Remedy, groups: Mapping[str, str]) -> Remedy:
    """Fill a remedy's `{placeholders}` with what the log said."""
    return replace(
        remedy,
        env={name: _filled(value, groups) for name, value in remedy.env.items()},
        args={
            _flag(name, groups): _filled(value, groups) if isinstance(value, str) else value
            for name, value in remedy.args.items()
        },
        rename_args={
            _flag(old, groups): _flag(new, groups) for old, new in remedy.rename_args.items()
        },
        requires=tuple(
            replace(one, what=_filled(one.what, groups), text=_filled(one.text, groups))
            for one in remedy.requires
        ),
    )


def _filled(text: str, groups: Mapping[str, str]) -> str:
    """Fill one text."""
    return text.format(**groups) if "{" in text else text


def _flag(text: str, groups: Mapping[str, str]) -> str:
    """Fill a flag's name, written underscored and without dashes."""
    return _filled(text, groups).lstrip("-").replace("-", "_")
