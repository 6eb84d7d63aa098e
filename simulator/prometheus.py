"""`/metrics`: the names, types and labels that SGLang 0.5.9 exposes."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator.engine import Counters, Request

TTFT_BUCKETS = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400,
)  # fmt: skip
ITL_BUCKETS = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2,
    0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
E2E_BUCKETS = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800,
    2400,
)  # fmt: skip


@dataclass(slots=True)
class Histogram:
    """A cumulative histogram over fixed upper bounds; every observation may weigh more than 1."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.bounds)

    def observe(self, value: float, weight: int = 1) -> None:
        self.total += value * weight
        self.count += weight
        for i, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[i] += weight

    def lines(self, name: str, label: str) -> Iterable[str]:
        yield f"{name}_sum{{{label}}} {self.total}"
        for bound, count in zip(self.bounds, self.counts, strict=True):
            yield f'{name}_bucket{{le="{float(bound)}",{label}}} {float(count)}'
        yield f'{name}_bucket{{le="+Inf",{label}}} {float(self.count)}'
        yield f"{name}_count{{{label}}} {float(self.count)}"


@dataclass(slots=True)
class Tally:
    """What has been counted since the start."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    responses: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    prompt_tokens: int = 0
    generated_tokens: int = 0
    generations: int = 0
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS))
    e2e: Histogram = field(default_factory=lambda: Histogram(E2E_BUCKETS))

    def finished(self, request: Request) -> None:
        """Count a finished generation; its gaps all count as their mean."""
        self.prompt_tokens += len(request.prompt)
        self.generated_tokens += request.produced
        self.generations += 1
        self.ttft.observe(request.first_token_s - request.submitted_s)
        self.e2e.observe(request.finished_s - request.submitted_s)
        if gaps := request.produced - 1:
            self.itl.observe((request.finished_s - request.first_token_s) / gaps, gaps)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the scheduler at the moment of a scrape."""

    model: str
    running: int
    queued: int
    used_tokens: int
    max_tokens: int
    throughput: float
    cache_hit_rate: float
    accept_length: float
    accept_rate: float
    startup_s: float
    counters: Counters


def render(now: Snapshot, tally: Tally) -> str:
    """Return the exposition text."""
    label = f'model_name="{now.model}"'
    lines: list[str] = []
    for name, histogram, words in (
        ("time_to_first_token_seconds", tally.ttft, "time to first token in seconds"),
        ("inter_token_latency_seconds", tally.itl, "inter-token latency in seconds"),
        ("e2e_request_latency_seconds", tally.e2e, "End-to-end request latency in seconds"),
    ):
        lines += _head(name, "histogram", f"Histogram of {words}.")
        lines += histogram.lines(f"sglang:{name}", label)
    lines += _gauges(now)
    lines += _counters(now, tally, label)
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP sglang:{name} {words}", f"# TYPE sglang:{name} {kind}"]


def _gauges(now: Snapshot) -> list[str]:
    label = (
        f'engine_type="unified",model_name="{now.model}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    )
    gauges = {
        "num_running_reqs": now.running,
        "num_used_tokens": now.used_tokens,
        "token_usage": round(now.used_tokens / max(1, now.max_tokens), 4),
        "gen_throughput": now.throughput,
        "num_queue_reqs": now.queued,
        "cache_hit_rate": now.cache_hit_rate,
        "max_total_num_tokens": now.max_tokens,
        "spec_accept_length": now.accept_length,
        "spec_accept_rate": now.accept_rate,
        "engine_startup_time": now.startup_s,
        "num_retracted_reqs": 0,
        "utilization": 0,
    }
    lines: list[str] = []
    for name, value in gauges.items():
        lines += _head(name, "gauge", f"{name.replace('_', ' ')}.".capitalize())
        lines.append(f"sglang:{name}{{{label}}} {float(value)}")
    return lines


def _counters(now: Snapshot, tally: Tally, label: str) -> list[str]:
    lines = _head("http_requests_total", "counter", "Total number of HTTP requests.")
    for (path, method), count in tally.requests.items():
        where = f'endpoint="{path}",method="{method}"'
        lines.append(f"sglang:http_requests_total{{{where}}} {float(count)}")
    lines += _head("http_responses_total", "counter", "Total number of HTTP responses.")
    for (path, method, status), count in tally.responses.items():
        where = f'endpoint="{path}",method="{method}",status_code="{status}"'
        lines.append(f"sglang:http_responses_total{{{where}}} {float(count)}")
    totals = {
        "prompt_tokens_total": tally.prompt_tokens,
        "cached_tokens_total": now.counters.cached_tokens,
        "generation_tokens_total": tally.generated_tokens,
        "num_requests_total": tally.generations,
    }
    for name, value in totals.items():
        lines += _head(name, "counter", f"Number of {name.removesuffix('_total')}.")
        lines.append(f"sglang:{name}{{{label}}} {float(value)}")
    return lines
