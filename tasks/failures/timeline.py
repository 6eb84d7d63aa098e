"""Where in its life a server was: the lines that tell, and what they tell about the end."""

from dataclasses import dataclass

from tasks.domain.diagnosis import Phase

LAUNCHES = ("server_args=ServerArgs(", "server_args={'model_path'", "non-default args: {")
"""Written once by each launch: in a log that several launches wrote to, the last one counts."""

READY = "The server is fired up and ready to roll"

_STARTED = "Application startup complete"
"""vLLM's word for ready; SGLang says it before its warm-up."""

_VLLM = "vLLM API server"

BUSY = ("Decode batch", "Prefill batch", '" 200 OK', "Avg prompt throughput")
"""Parts of the lines that a serving server writes by the million."""

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
    _STARTED: Phase.WARMUP,
    READY: Phase.SERVING,
    _VLLM: Phase.START,
    "SIGTERM received": Phase.STOPPING,
    "Gracefully exiting": Phase.STOPPING,
    "Shutting down": Phase.STOPPING,
}
"""Literal parts of progress lines, SGLang 0.4 to 0.5.23, and the phase that begins with them."""


@dataclass(slots=True)
class Timeline:
    """The phase so far, and the numbers of the last lines of some kinds, 0 where there was none.

    `alive` is the last line that only a server in good health writes.
    """

    phase: Phase | None = None
    launched: int = 0
    ready: int = 0
    alive: int = 0
    vllm: bool = False

    def read(self, line: str, number: int) -> None:
        """Take in a line that holds a mark."""
        for mark, phase in MARKS.items():
            if mark in line:
                self.vllm = self.vllm or mark == _VLLM
                phase = Phase.SERVING if self.vllm and mark == _STARTED else phase
                self.phase = phase
                self.launched = number if mark in LAUNCHES else self.launched
                self.ready = number if phase is Phase.SERVING else self.ready
                lives = phase in (Phase.SERVING, Phase.STOPPING)
                self.alive = number if lives else self.alive

    def busy(self, number: int) -> None:
        """Take in that a request was served, which a server also does once to warm up."""
        self.alive = number
        if self.ready > self.launched:
            self.phase = Phase.SERVING
