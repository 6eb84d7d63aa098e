"""What the flows of one sweep share beside their parameters.

A flow's parameters are what a person reads in the UI; the held host, the store's folder and the
results so far are not, so they travel in a context variable.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from settings.sweep import Sweep
from tasks.domain.answer import Answer
from tasks.domain.configuration import Spell, Trial, TrialResult
from tasks.domain.progress import Progress
from tasks.results.folders import SweepFolder
from tasks.results.saving import TrialStore
from tasks.server.site import Site


@dataclass(slots=True)
class Course:
    """One sweep under way; `results` has every trial from the start, pending at first."""

    sweep: Sweep
    site: Site
    folder: SweepFolder
    results: dict[str, TrialResult]
    rounds: int
    done: int = 0
    measured_s: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    spells: list[Spell] = field(default_factory=list)
    store: TrialStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = TrialStore(self.folder)

    @property
    def reference(self) -> tuple[Answer, ...] | None:
        """The baseline's answers; where it gave none, those of the first that was accepted."""
        ordered = sorted(self.results.values(), key=lambda result: not result.trial.baseline)
        return next((result.answers for result in ordered if result.answers), None)

    @property
    def eta_s(self) -> float | None:
        """Time left by the mean of what has been measured; None before the first."""
        if not self.measured_s:
            return None
        return sum(self.measured_s) / len(self.measured_s) * (self.rounds - self.done)

    def out_of_budget(self) -> bool:
        """Whether no new launch may start."""
        budget_s = self.sweep.search.budget
        return budget_s is not None and time.monotonic() - self.started > budget_s

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Note how long something takes, for the launch that is under way."""
        started_at, started = time.time(), time.monotonic()
        try:
            yield
        finally:
            self.spells.append(Spell(doing, started_at, time.monotonic() - started))

    def noted(self, result: TrialResult, number: int) -> TrialResult:
        """Put what was noted into the launch that it belongs to, if there is one."""
        spells, self.spells = self.spells, []
        last = result.attempts[-1] if result.attempts else None
        if last is None or last.number != number:
            return result
        ordered = sorted((*last.spells, *spells), key=lambda spell: spell.started_at)
        return replace(
            result, attempts=(*result.attempts[:-1], replace(last, spells=tuple(ordered)))
        )

    def what(self, trial: Trial, phase: str, attempt: int | None = None) -> Progress:
        """Where the sweep stands, for whoever watches."""
        return Progress(
            phase,
            trial=self.done + 1,
            trials=self.rounds,
            label=trial.label,
            attempt=attempt,
            eta_s=self.eta_s,
        )


course: ContextVar[Course] = ContextVar("course")
