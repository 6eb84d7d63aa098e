"""What is to be made of a trial: its verdict from the verdicts of its runs."""

from dataclasses import replace

from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.measurement import LevelResult, SearchRole, Validity

_VERDICTS = {
    Validity.VALID: TrialVerdict.MEASURED,
    Validity.SUSPECT: TrialVerdict.SUSPECT,
    Validity.INVALID: TrialVerdict.INVALID,
}
_WORST_LAST = list(Validity)


def judged(result: TrialResult) -> TrialResult:
    """Take the worst of the runs' verdicts, with its reasons.

    A cross-check by another client decides nothing, so its doubts about itself don't count. Nor do
    the steps of a search, only its answer: some of them overload the server on purpose.
    """
    searched = any(level.search is SearchRole.STEP for level in result.levels)
    levels = [level for level in result.levels if not _decides_nothing(level)]
    worst = max(
        (level.verdict.validity for level in levels),
        key=_WORST_LAST.index,
        default=Validity.VALID if searched else Validity.INVALID,
    )
    lost = {attempt.repeat for attempt in result.attempts} - {lv.repeat for lv in result.levels}
    if lost and worst is not Validity.INVALID:
        why = f"repeat {', '.join(map(str, sorted(lost)))} was not measured"
        return replace(result, verdict=TrialVerdict.SUSPECT, reason=why)
    reasons = [_reason(level) for level in levels if level.verdict.validity is worst]
    reason = "" if worst is Validity.VALID else "; ".join(reasons) or "nothing was measured"
    return replace(result, verdict=_VERDICTS[worst], reason=reason)


def _decides_nothing(level: LevelResult) -> bool:
    doubts_itself = "engine" in level.client and level.verdict.validity is Validity.SUSPECT
    return doubts_itself or level.search is SearchRole.STEP


def unmeasured(result: TrialResult, verdict: TrialVerdict, reason: str) -> TrialResult:
    """Give a trial up for a reason; what earlier repeats measured is kept, and doubted."""
    if result.levels and verdict is not TrialVerdict.STOPPED:
        return replace(result, verdict=TrialVerdict.SUSPECT, reason=f"a repeat failed: {reason}")
    return replace(result, verdict=verdict, reason=reason)


def _reason(level: LevelResult) -> str:
    return f"{level.workload} {level.level}: {', '.join(level.verdict.reasons)}"
