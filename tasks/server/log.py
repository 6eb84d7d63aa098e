"""Follow SGLang's log: in which phase the server is, how far, and whether it says it is ready.

The lines are those of 0.5.9 and 0.5.23; a version that words them otherwise only loses progress,
never readiness by the other signs.
"""

import re
from dataclasses import dataclass, replace

from tasks.domain.diagnosis import Phase

_PHASES: tuple[tuple[str, Phase], ...] = (
    ("Init torch distributed begin", Phase.DISTRIBUTED),
    ("Init parallel begin", Phase.DISTRIBUTED),
    ("Load weight begin", Phase.WEIGHTS),
    ("KV Cache is allocated", Phase.KV_CACHE),
    ("Capture cuda graph begin", Phase.GRAPH_CAPTURE),
    ("Capture draft cuda graph begin", Phase.GRAPH_CAPTURE),
    ("Uvicorn running on", Phase.WARMUP),
    ("The server is fired up and ready to roll", Phase.SERVING),
    ("SIGTERM received", Phase.STOPPING),
)
_ORDER = list(Phase)
_SHARDS = re.compile(r"shards:\s+(\d+)% Completed \| (\d+)/(\d+)")
_CAPTURE = re.compile(r"Capturing batches.*?(\d+)%\|.*?\| (\d+)/(\d+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
READY = "The server is fired up and ready to roll"


@dataclass(frozen=True, slots=True)
class LogState:
    """What the log has said so far; `fraction` is the progress within the phase, 0 to 1."""

    phase: Phase = Phase.START
    fraction: float | None = None
    detail: str = ""
    ready: bool = False
    rest: bytes = b""


def follow(state: LogState, data: bytes) -> tuple[LogState, list[str]]:
    """Take the next bytes of the log; return the new state and the lines that became whole.

    A carriage return ends a line too, since progress bars rewrite theirs.
    """
    *whole, rest = re.split(rb"[\r\n]", state.rest + data)
    lines = [_ANSI.sub("", line.decode(errors="replace")) for line in whole if line.strip()]
    for line in lines:
        state = _read(state, line)
    return replace(state, rest=rest), lines


def _read(state: LogState, line: str) -> LogState:
    for text, phase in _PHASES:
        if text in line and _ORDER.index(phase) > _ORDER.index(state.phase):
            return replace(
                state, phase=phase, fraction=None, detail="", ready=state.ready or text == READY
            )
    for pattern, what in ((_SHARDS, "weights"), (_CAPTURE, "capturing graphs")):
        if match := pattern.search(line):
            percent, done, of = (int(group) for group in match.groups())
            return replace(state, fraction=percent / 100, detail=f"{what} {done}/{of}")
    return state
