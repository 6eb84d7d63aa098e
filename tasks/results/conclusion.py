"""How a sweep ended: the name and the line that its final state bears."""

import math
from dataclasses import dataclass

from tasks.domain.configuration import TrialVerdict
from tasks.results.records import StoredSweep, SweepState
from tasks.results.regression import Standing, regression_text
from tasks.results.view import View
from tasks.results.wording import number

COMPLETED = "Completed"
WITH_FAILURES = "CompletedWithFailures"
NOTHING_FEASIBLE = "NothingFeasible"
REGRESSION = "Regression"
NEEDS_PERSON = "HostNeedsPerson"
WRONG_INPUT = "WrongInput"
REQUESTS_FAILED = "RequestsFailed"
INVALID = "Invalid"

ENDS = (
    COMPLETED,
    WITH_FAILURES,
    NOTHING_FEASIBLE,
    REGRESSION,
    NEEDS_PERSON,
    WRONG_INPUT,
    REQUESTS_FAILED,
    INVALID,
    "Failed",
    "Crashed",
    "Cancelled",
    "TimedOut",
)
"""The names of all states in which a flow run of ours may end."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A sweep's end: for the store, for Prefect's state, for a person."""

    state: SweepState
    name: str
    message: str

    @property
    def good(self) -> bool:
        """Whether the sweep has a best configuration."""
        return self.name in (COMPLETED, WITH_FAILURES)


def conclude(page: View, standing: Standing | None = None) -> Conclusion:
    """Judge a sweep whose trials are over; `standing` is its place among the past nights."""
    stored = page.stored
    stopped = [r for r in stored.trials if r.verdict is TrialVerdict.STOPPED]
    if stopped:
        reason = f"{stopped[0].trial.label}: {stopped[0].reason}"
        return Conclusion(SweepState.FAILED, NEEDS_PERSON, reason)
    counts = f"{len(stored.trials)} trials: {page.counts}"
    if page.selection.best is None:
        return Conclusion(SweepState.FAILED, NOTHING_FEASIBLE, f"no best; {counts}{_why(stored)}")
    if standing is not None and standing.regressions:
        told = "; ".join(regression_text(shift) for shift in standing.regressions)
        return Conclusion(SweepState.REGRESSION, REGRESSION, f"{told}; {counts}")
    counts += _doubts(standing)
    if all(result.verdict is TrialVerdict.MEASURED for result in stored.trials):
        return Conclusion(SweepState.COMPLETED, COMPLETED, counts)
    return Conclusion(SweepState.COMPLETED_WITH_FAILURES, WITH_FAILURES, counts)


def _doubts(standing: Standing | None) -> str:
    """Name what is far below its level tonight: one night alone may be an outlier."""
    far = [level for level in standing.levels if level.far] if standing else []
    if not far:
        return ""
    worst = max(far, key=lambda level: abs(math.log(level.tonight / (level.center or 1))))
    more = f" (and {len(far) - 1} more)" if len(far) > 1 else ""
    return (
        f"; {worst.metric} at {worst.cell} is far off tonight: {number(worst.tonight)}, usually "
        f"{number(worst.center or 0)}{more}; another such night is a regression"
    )


def _why(stored: StoredSweep) -> str:
    """The reason that most of the trials share, where they are all alike."""
    verdicts = {result.verdict for result in stored.trials}
    reasons = [result.reason for result in stored.trials if result.reason]
    return f" ({reasons[0]})" if len(verdicts) == 1 and reasons else ""
