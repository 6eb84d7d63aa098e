"""What is to be made of a trial: its verdict from the verdicts of its runs."""

from dataclasses import replace

from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.measurement import LevelResult, Validity

_VERDICTS = {
    Validity.VALID: TrialVerdict.MEASURED,
    Validity.SUSPECT: TrialVerdict.SUSPECT,
    Validity.INVALID: TrialVerdict.INVALID,
}
_WORST_LAST = list(Validity)


def judged(result: TrialResult) -> TrialResult:
    """Take the worst of the runs' verdicts, with its reasons.

    A cross-check by another client decides nothing, so its doubts about itself don't count.
    """
    levels = [level for level in result.levels if not _doubts_itself(level)]
    worst = max(
        (level.verdict.validity for level in levels),
        key=_WORST_LAST.index,
        default=Validity.INVALID,
    )
    lost = {attempt.repeat for attempt in result.attempts} - {lv.repeat for lv in result.levels}
    if lost and worst is not Validity.INVALID:
        why = f"repeat {', '.join(map(str, sorted(lost)))} was not measured"
        return replace(result, verdict=TrialVerdict.SUSPECT, reason=why)
    reasons = [_reason(level) for level in levels if level.verdict.validity is worst]
    reason = "" if worst is Validity.VALID else "; ".join(reasons) or "nothing was measured"
    return replace(result, verdict=_VERDICTS[worst], reason=reason)


def _doubts_itself(level: LevelResult) -> bool:
    return "engine" in level.client and level.verdict.validity is Validity.SUSPECT


def unmeasured(result: TrialResult, verdict: TrialVerdict, reason: str) -> TrialResult:
    """Give a trial up for a reason; what earlier repeats measured is kept, and doubted."""
    if result.levels and verdict is not TrialVerdict.STOPPED:
        return replace(result, verdict=TrialVerdict.SUSPECT, reason=f"a repeat failed: {reason}")
    return replace(result, verdict=verdict, reason=reason)


def _reason(level: LevelResult) -> str:
    return f"{level.workload} {level.level}: {', '.join(level.verdict.reasons)}"
