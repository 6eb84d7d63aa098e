"""Pass on what goes on: to Prefect's log, and from a load to whoever watches."""

import logging
from collections.abc import Callable
from dataclasses import replace

from rich.text import Text

from tasks.domain.progress import Listener, Progress, listener, report
from tasks.load.run import LoadProgress

Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


def log_messages(logger: Logger) -> None:
    """Send each message to the flow run's log too, beside whoever listens already."""
    listener.set(_tee(listener.get(), logger))


def _tee(before: Listener, logger: Logger) -> Listener:
    def hear(progress: Progress) -> None:
        before(progress)
        if progress.message is not None:
            logger.info(Text.from_markup(progress.message).plain)

    return hear


def load_teller(what: Progress) -> Callable[[LoadProgress], None]:
    """Pass on how far a load is."""

    def tell(progress: LoadProgress) -> None:
        detail = f"{progress.requests_done}/{progress.requests} requests"
        report(replace(what, detail=detail, tokens_per_s=progress.tokens_per_s))

    return tell
