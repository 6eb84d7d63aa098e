"""What the UI is shown of a launch that goes on: how far it is, and what the server writes."""

from collections.abc import Iterator

from tasks.domain.progress import Progress

EVERY_S = 3.0
"""How often the UI is told."""

BURST_LINES = 60
LINES_PER_S = 1.0
"""Of the server's log the UI gets a burst of lines and then so many a second: 300 launches of half
an hour stay well below what Prefect's database takes, and the whole log is a file."""

LAST_LINES = 20
"""However much was shown before: they say why a launch failed."""

LONGEST_LINE = 400
"""Characters of a line; `server_args=ServerArgs(…)` alone has several thousand."""


class Trickle:
    """Lets lines through at a bounded rate, and counts those that it leaves out."""

    def __init__(self, burst: int = BURST_LINES, per_s: float = LINES_PER_S) -> None:
        self.burst, self.per_s = float(burst), per_s
        self.allowed = float(burst)
        self.seen_at: float | None = None
        self.left_out = 0

    def allow(self, lines: int) -> None:
        """Let at least so many of the next lines through."""
        self.allowed = max(self.allowed, float(lines))

    def through(self, lines: list[str], now: float) -> Iterator[str]:
        """The lines that may be shown; before the first one a word on how many are missing."""
        if self.seen_at is not None:
            gained = (now - self.seen_at) * self.per_s
            self.allowed = max(self.allowed, min(self.burst, self.allowed + gained))
        self.seen_at = now
        kept = min(len(lines), int(self.allowed))
        self.allowed -= kept
        self.left_out += len(lines) - kept
        if kept and self.left_out:
            yield f"… {self.left_out} lines left out, they are in server.log"
            self.left_out = 0
        # The newest lines say where the launch is.
        for line in lines[len(lines) - kept :]:
            yield line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …"


class Heard:
    """What the launch has told since the UI was last updated."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.log = ""

    def take_in(self, progress: Progress) -> None:
        """Keep the newest progress, and all that the log has gained."""
        if progress.message is None:
            self.progress = progress
        self.log += progress.log

    def lines(self, *, to_the_end: bool = False) -> list[str]:
        """The whole lines of the log that are new."""
        whole, newline, rest = self.log.rpartition("\n")
        self.log = rest
        if to_the_end:
            whole, self.log = whole + newline + rest, ""
        return [line for line in whole.splitlines() if line.strip()]


def share_done(expected_s: float | None, heard: Progress | None, waited_s: float) -> float:
    """Percent of the launch that is over: by earlier launches of the model, else of its phase."""
    if expected_s:
        return min(99.0, 100.0 * waited_s / expected_s)
    return 100.0 * ((heard.fraction if heard else None) or 0.0)
