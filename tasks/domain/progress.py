"""How a long run tells how far it is.

The flow reports events; whoever watches (a terminal, a Prefect artifact, nobody) listens. The
listener travels in a context variable, since a flow's parameters are a form for people.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a sweep stands; None where it doesn't apply, times in seconds.

    `message` is a line that stays, in Rich's markup: text that isn't ours is escaped in it. `log`
    is what the server's log has gained.
    """

    phase: str
    trial: int | None = None
    trials: int | None = None
    label: str = ""
    attempt: int | None = None
    detail: str = ""
    fraction: float | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = None
    message: str | None = None
    log: str = ""


Listener = Callable[[Progress], None]


def _nobody(_: Progress) -> None:
    """Hear nothing."""


listener: ContextVar[Listener] = ContextVar("listener", default=_nobody)


def report(progress: Progress) -> None:
    """Tell whoever listens."""
    listener.get()(progress)
