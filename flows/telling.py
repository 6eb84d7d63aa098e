"""Tell in Prefect's log what a terminal would show: the lines that stay."""

import logging

from rich.text import Text

from tasks.domain.progress import Listener, Progress, listener

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
