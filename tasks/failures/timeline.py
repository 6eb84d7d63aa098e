"""Where in its life a server was: the lines that tell, and what they tell about the end."""

from dataclasses import dataclass

from tasks.domain.diagnosis import Phase

LAUNCHES = ("server_args=ServerArgs(", "server_args={'model_path'", "non-default args: {")
"""Written once by each launch: in a log that several launches wrote to, the last one counts."""

READY = "The server is fired up and ready to roll"

MARKS: dict[str, Phase] = {
    **dict.fromkeys(LAUNCHES, Phase.START),
    "Init torch distributed begin": Phase.DISTRIBUTED,
    "Init parallel begin": Phase.DISTRIBUTED,
    "Init torch distributed ends": Phase.WEIGHTS,
    "Init parallel ends": Phase.WEIGHTS,
    "Load weight begin": Phase.WEIGHTS,
    "Load weight end": Phase.KV_CACHE,
    "Memory pool end": Phase.GRAPH_CAPTURE,
    "graph begin": Phase.GRAPH_CAPTURE,
    "max_total_num_tokens=": Phase.WARMUP,
    "Application startup complete": Phase.WARMUP,
    READY: Phase.SERVING,
    "Decode batch": Phase.SERVING,
    '"POST /': Phase.SERVING,
    "SIGTERM received": Phase.STOPPING,
    "Gracefully exiting": Phase.STOPPING,
    "Shutting down": Phase.STOPPING,
}
"""Literal parts of progress lines, SGLang 0.4 to 0.5.23, and the phase that begins with them."""

ALIVE = (Phase.SERVING, Phase.STOPPING)


@dataclass(slots=True)
class Timeline:
    """The last progress line of the log so far; offsets are characters from its beginning."""

    phase: Phase | None = None
    offset: int = -1
    launched: int = -1
    ready: int = -1
    alive: int = -1

    def read(self, text: str, offset: int) -> None:
        """Take in the next piece of the log, which begins at `offset`."""
        for mark, phase in MARKS.items():
            found = text.rfind(mark)
            if found >= 0:
                self._note(mark, phase, offset + found)

    def _note(self, mark: str, phase: Phase, offset: int) -> None:
        if offset > self.offset:
            self.phase, self.offset = phase, offset
        if mark in LAUNCHES:
            self.launched = max(self.launched, offset)
        if mark == READY:
            self.ready = max(self.ready, offset)
        if phase in ALIVE:
            self.alive = max(self.alive, offset)


def phase_within(text: str) -> Phase | None:
    """Tell the phase at the end of a piece of a log, None where no line tells."""
    timeline = Timeline()
    timeline.read(text, 0)
    return timeline.phase
