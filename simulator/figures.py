"""The figures of a run, under the names and with the definitions of `sglang.bench_serving`."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stream:
    """One finished request: when it was sent, and when how many tokens came. Seconds."""

    sent_s: float
    input_len: int
    chunks: tuple[tuple[float, int], ...]

    @property
    def output_len(self) -> int:
        return sum(count for _, count in self.chunks)

    @property
    def ttft_s(self) -> float:
        return self.chunks[0][0] - self.sent_s

    @property
    def latency_s(self) -> float:
        return self.chunks[-1][0] - self.sent_s


def percentile(values: Sequence[float], percent: float) -> float:
    """Interpolate linearly between the closest ranks (numpy's default); 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def inter_token_s(stream: Stream) -> list[float]:
    """Return the gaps between tokens; a gap before k tokens counts as k equal ones (SGLang's)."""
    gaps: list[float] = []
    previous = stream.chunks[0][0]
    for at, count in stream.chunks[1:]:
        gaps.extend([(at - previous) / count] * count)
        previous = at
    return gaps


def per_output_token_s(streams: Sequence[Stream]) -> list[float]:
    """Return (latency - TTFT) / (tokens - 1) of each stream of two tokens or more."""
    return [(s.latency_s - s.ttft_s) / (s.output_len - 1) for s in streams if s.output_len > 1]


def summarise(streams: Sequence[Stream]) -> dict[str, float]:
    """Return `bench_serving`'s figures of a whole run; latencies in milliseconds."""
    if not streams:
        return {"completed": 0, "duration": 0.0}
    begin = min(s.sent_s for s in streams)
    duration = max(s.chunks[-1][0] for s in streams) - begin
    output = sum(s.output_len for s in streams)
    latencies = [s.latency_s for s in streams]
    figures: dict[str, float] = {
        "completed": len(streams),
        "duration": duration,
        "total_input_tokens": sum(s.input_len for s in streams),
        "total_output_tokens": output,
        "request_throughput": len(streams) / duration,
        "input_throughput": sum(s.input_len for s in streams) / duration,
        "output_throughput": output / duration,
        "concurrency": sum(latencies) / duration,
    }
    figures["total_throughput"] = figures["input_throughput"] + figures["output_throughput"]
    figures |= _spread("ttft", [s.ttft_s for s in streams])
    figures |= _spread("tpot", per_output_token_s(streams))
    figures |= _spread("itl", [gap for s in streams for gap in inter_token_s(s)])
    return figures | _spread("e2e_latency", latencies)


def _spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    milliseconds = [value * 1000 for value in seconds]
    mean = sum(milliseconds) / len(milliseconds) if milliseconds else 0.0
    return {
        f"mean_{name}_ms": mean,
        f"median_{name}_ms": percentile(milliseconds, 50),
        f"p99_{name}_ms": percentile(milliseconds, 99),
    }
