"""What one launch is asked for, and what came of it."""

from dataclasses import dataclass, field

from tasks.domain.configuration import Attempt, ServerConfiguration
from tasks.domain.diagnosis import Remedy
from tasks.domain.facts import StackReport
from tasks.domain.progress import Progress
from tasks.server.launch import Launch


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One launch: the configuration with its remedies applied, on one stack.

    `number` counts the trial's launches from 1 over all its repeats; `mark` is the marker of all
    its processes and ends with a slash, so that none is the beginning of another. `expected_s` is
    how long earlier launches of this model took.
    """

    configuration: ServerConfiguration
    stack: StackReport
    remedies: tuple[Remedy, ...]
    trial_id: str
    number: int
    repeat: int
    mark: str
    what: Progress
    avoid_ports: tuple[int, ...] = ()
    ready_factor: float = 1.0
    expected_s: float | None = None

    @property
    def label(self) -> str:
        """The trial's axes as a person reads them."""
        return self.what.label


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that ended in a server that serves, or in a diagnosis, with the end of its log.

    Prefect logs what a failed task brought, so this shows itself in a word.
    """

    attempt: Attempt = field(repr=False)
    launch: Launch = field(repr=False)
    log: str = field(repr=False, default="")
