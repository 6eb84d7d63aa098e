"""Questions to the launches of a trial."""

from collections.abc import Iterator

from tasks.domain.configuration import Attempt, TrialResult
from tasks.domain.diagnosis import Diagnosis


def measured_attempt(result: TrialResult, repeat: int | None = None) -> Attempt | None:
    """Find the launch whose server was measured: the last that served, of one repeat if said.

    None where no launch became ready and stayed well.
    """
    served = [a for a in result.attempts if served_well(a) and repeat in (None, a.repeat)]
    return served[-1] if served else None


def cured_by(result: TrialResult, failed: Attempt) -> Attempt | None:
    """Find the later launch of the same repeat that served after a failed one."""
    later = (
        attempt
        for attempt in result.attempts
        if attempt.repeat == failed.repeat and attempt.number > failed.number
    )
    return next((attempt for attempt in later if served_well(attempt)), None)


def served_well(attempt: Attempt) -> bool:
    """Whether a server became ready and nothing was diagnosed afterwards."""
    return attempt.ready_s is not None and attempt.diagnosis is None


def failures(result: TrialResult) -> Iterator[tuple[Attempt, Diagnosis]]:
    """Go through the launches that failed, each with its cause."""
    for attempt in result.attempts:
        if attempt.diagnosis is not None:
            yield attempt, attempt.diagnosis
