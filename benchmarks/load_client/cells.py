"""The loads under which clients are compared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """One load: `streams` at once (closed loop) or `rate` requests per second (open loop).

    `server` are the server's options. `floor` says whether the bare reader can do it as well.
    """

    name: str
    streams: int
    requests: int
    tokens: int
    server: tuple[str, ...]
    rate: float | None = None
    floor: bool = True
    backend: str = "sglang"


_PACED = ("--ttft-ms", "50", "--itl-ms", "20")

CELLS: tuple[Cell, ...] = (
    Cell("streams16", 16, 32, 128, _PACED),
    Cell("streams64", 64, 128, 128, _PACED),
    Cell("streams256", 256, 512, 128, _PACED),
    Cell("streams1024", 1024, 2048, 128, _PACED),
    Cell("flood", 64, 256, 512, ("--ttft-ms", "5", "--itl-ms", "0")),
    Cell("open400", 0, 2400, 32, _PACED, rate=400, floor=False),
    Cell("open1000", 0, 6000, 16, _PACED, rate=1000, floor=False),
    Cell("speculative", 16, 64, 128, (*_PACED, "--per-event", "4"), floor=False),
    Cell("completions", 256, 512, 128, _PACED, floor=False, backend="openai"),
    Cell(
        "faults",
        16,
        100,
        64,
        (*_PACED, "--errors", "0.05", "--cuts", "0.05", "--stall-s", "10", "--spared", "1"),
        floor=False,
    ),
)

_BRIEF = ("--ttft-ms", "5", "--itl-ms", "1")

SMOKE: tuple[Cell, ...] = (
    Cell("smoke", 2, 4, 8, _BRIEF),
    Cell("smoke-open", 0, 20, 4, _BRIEF, rate=200, floor=False),
)
"""Whether all of this works at all; run only where they are named."""

ONE = Cell("one", 1, 1, 8, _BRIEF)
"""What starting up costs; every comparison has it, and subtracts it."""
