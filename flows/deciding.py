"""What follows a launch that failed: the step, checked on the host, and the page that tells it."""

from dataclasses import dataclass
from pathlib import Path

from flows.course import Course
from tasks.domain.configuration import Attempt, TrialVerdict
from tasks.domain.diagnosis import Diagnosis, Remedy
from tasks.failures.explain import Surroundings, failure_page
from tasks.failures.remedies import (
    NextStep,
    Prune,
    Retry,
    Standing,
    Stop,
    inapplicable,
    next_step,
)
from tasks.gpus.clean import gpu_facts
from tasks.results.good_launches import good_launch
from tasks.server.cure import unmet
from tasks.server.order import LaunchOrder

_SERVED = (TrialVerdict.MEASURED, TrialVerdict.SUSPECT)


@dataclass(slots=True)
class Decision:
    """What is decided after one launch, once; `made` counts the launches of this repeat so far."""

    now: Course
    order: LaunchOrder
    made: int
    step: NextStep | None = None
    unmet: tuple[str, ...] = ()

    async def after(self, diagnosis: Diagnosis) -> NextStep:
        """Decide what follows, having checked on the host what the remedy requires."""
        if self.step is None:
            standing = self._standing()
            self.step = next_step(diagnosis, standing)
            remedy = diagnosis.remedy
            if isinstance(self.step, Retry) and remedy and remedy is self.step.remedies[-1]:
                self.unmet = await unmet(self.now.site, remedy, self.order)
                if self.unmet:
                    self.step = inapplicable(diagnosis, self.unmet, standing)
        return self.step

    async def page(self, attempt: Attempt, log: str) -> str:
        """Write the page on a launch that failed, with what follows it."""
        if attempt.diagnosis is None:
            return failure_page(attempt)
        step = await self.after(attempt.diagnosis)
        now = self.now
        good = good_launch(
            now.folder.store, now.site.host.name, self.order.configuration.model_path
        )
        around = Surroundings(
            follows=follows(step),
            log=log,
            log_path=str(self._folder(attempt) / "server.log"),
            good_env=good.env if good else None,
            gpus=await gpu_facts(now.site.holds[attempt.diagnosis.node].host) or (),
            findings=self.order.stack.findings,
            unmet=self.unmet,
        )
        return failure_page(attempt, around)

    def _folder(self, attempt: Attempt) -> Path:
        """Where the store keeps what the node that failed has left."""
        node = attempt.diagnosis.node if attempt.diagnosis else 0
        return self.now.folder.node(self.order.trial_id, attempt.number, node)

    def _standing(self) -> Standing:
        site, order = self.now.site, self.order
        tried, own = order.remedies, order.configuration.stack is not None
        others = [r for r in self.now.results.values() if r.trial.trial_id != order.trial_id]
        return Standing(
            tried=tried,
            made=self.made,
            max_attempts=self.now.sweep.retry.max_attempts,
            stacks_left=0 if own else len(site.stacks) - 1 - moves(tried),
            others_have_stacks=own and len(site.stacks) > 1,
            host_serves=any(
                r.verdict in _SERVED and r.fingerprint == order.stack.fingerprint for r in others
            ),
        )


def moves(remedies: tuple[Remedy, ...]) -> int:
    """How many stacks the remedies skip."""
    return sum(remedy.another_stack for remedy in remedies)


def follows(step: NextStep) -> str:
    """Say in a few words what is done next."""
    match step:
        case Retry(remedies):
            return f"retry: {remedies[-1].summary}" if remedies else "retry"
        case Prune():
            return "pruned, the sweep goes on"
        case Stop():
            return "stop: the host needs a person"
