"""Show on a terminal where a sweep stands: lines that stay, and one that changes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from settings.quantities import show_duration
from tasks.domain.progress import Progress, listener


class Board:
    """The last progress heard, drawn anew a few times a second."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.started = time.monotonic()
        self.progress = Progress("start")
        self.spinner = Spinner("dots")

    def hear(self, progress: Progress) -> None:
        """Take in what the flow reports; a message is printed and stays."""
        if progress.message is not None:
            # A terminal that went away, or `| head`, is no reason to give the night up.
            with suppress(OSError):
                self.console.print(progress.message, highlight=False)
        else:
            self.progress = progress

    def __rich__(self) -> RenderableType:
        """One line: trial of how many, phase, attempt, tokens a second, time left."""
        row = Table.grid(padding=(0, 1))
        row.add_row(self.spinner, *self._cells())
        return row

    def _cells(self) -> Iterator[RenderableType]:
        heard = self.progress
        if heard.trial is not None and heard.trials:
            yield Text(f"{heard.trial}/{heard.trials}", style="bold")
            yield ProgressBar(heard.trials, heard.trial - 1, width=16)
        yield Text(heard.label, style="cyan")
        attempt = f" (attempt {heard.attempt})" if (heard.attempt or 1) > 1 else ""
        yield Text(f"{heard.phase}{attempt}", style="bold")
        percent = f" {heard.fraction:.0%}" if heard.fraction is not None else ""
        yield Text(f"{heard.detail}{percent}")
        if heard.tokens_per_s is not None:
            yield Text(f"{heard.tokens_per_s:,.0f} tok/s", style="green")
        elapsed = show_duration(time.monotonic() - self.started)
        left = f", {show_duration(heard.eta_s)} left" if heard.eta_s is not None else ""
        yield Text(f"[{elapsed}{left}]", style="dim")


@contextmanager
def shown(console: Console) -> Iterator[None]:
    """Show progress while the body runs; without a terminal only the lines that stay."""
    board = Board(console)
    token = listener.set(board.hear)
    try:
        if console.is_terminal:
            with Live(board, console=console, refresh_per_second=8, transient=True):
                yield
        else:
            yield
    finally:
        listener.reset(token)
