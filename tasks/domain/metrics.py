"""From the requests of one run, in columns, to its metrics under `sglang.bench_serving`'s names.

The load client computes a run's metrics with this from what it has just seen, and the store from
what it has kept: they can't come to mean two things.

A metric that has no value is absent: no latency without a finished request, no TPOT or ITL
without a second token. Times are in ms where the name says so, else in s.

Of the finished requests, n tokens each:

| name | definition |
| --- | --- |
| `ttft` | first text that isn't empty - intended send |
| `e2e_latency` | arrival of the closing `[DONE]` - intended send |
| `tpot` | (E2E - TTFT) / (n - 1), requests with n > 1 |
| `itl` | gaps between chunks, each split evenly over the tokens of its chunk, pooled |
| `concurrency` | sum of E2E / duration |
| `duration` | first intended send to last end, failed requests included |
| `max_output_tokens_per_s` | tokens of the busiest second, in seconds counted from the first send |

Ours beyond that:

| name | definition |
| --- | --- |
| `request_goodput` | requests a second that finished within the workload's `slo` |
| `slo_attainment` | their share of all requests, failed ones included |
| `failed` | requests that were sent and didn't finish |
| `icl` | inter-chunk latency: the same gaps, one a chunk, however many tokens it brought |
| `max_icl_ms` | the longest of them |
| `first_token` | arrival of the first chunk with tokens, be its text empty or not - intended send |
| `cached_tokens` | prompt tokens that the server says it had in its cache |
| `steady_output_throughput` | tokens a second within the steady window, see `steady_window` |
| `max_concurrent_requests` | most requests in flight at once, exactly (bench_serving: by seconds) |
| `e2e_outlier_share` | share of the requests whose E2E is above Q3 + 3 (Q3 - Q1): Tukey's far out |

Whether the run held still is told by `tasks.domain.steadiness`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from settings.workload import Slo
from tasks.domain.chunks import Tally, tally
from tasks.domain.distribution import STATISTICS, Part, Values, percentile, statistics, whole
from tasks.domain.requests import UNKNOWN, Flags, Requests, Times, Window
from tasks.domain.steadiness import Paced, steadiness

FREE = Slo()

_FEWEST_FOR_QUARTILES = 4
_BRIEF = ("mean", "median", "p99")
_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class _Finished:
    """The finished requests; times are ns. `text` marks those of which a first text is known."""

    ttft: Times
    e2e: Times
    tokens: Times
    text: Flags
    first_token: Times

    @property
    def has_tpot(self) -> Flags:
        return self.text & (self.tokens > 1)

    @property
    def tpot(self) -> Values:
        """(E2E - TTFT) / (n - 1); anything below two tokens."""
        return (self.e2e - self.ttft) / np.maximum(self.tokens - 1, 1)


def metrics_of(
    requests: Requests,
    concurrency: int | None = None,
    accept_length: float | None = None,
    slo: Slo = FREE,
) -> dict[str, float]:
    """Compute every metric that the requests of one run give.

    `concurrency` is the closed loop's, None for the open loop; `accept_length` is the server's,
    used where the requests don't tell.
    """
    duration_s = _duration_s(requests)
    done = _finished(requests)
    metrics = _counts(requests, done, duration_s)
    if duration_s > 0:
        metrics |= _rates(metrics, done, duration_s)
        metrics |= _goodput(requests, done, duration_s, slo)
    window = steady_window(requests, concurrency)
    told = tally(requests, window)
    metrics |= _latencies(done, told)
    metrics |= _peaks(requests, told)
    if window is not None:
        metrics["steady_output_throughput"] = told.within / window.length_s
        metrics |= steadiness(_in_steady_order(requests, window))
    accept_length = accepted(requests) or accept_length
    if accept_length is not None:
        metrics["accept_length"] = accept_length
    return metrics


def accepted(requests: Requests) -> float | None:
    """Tokens per verification step over finished requests; None without speculative decoding."""
    counted = requests.finished & (requests.verify_steps > 0)
    steps = int(requests.verify_steps[counted].sum())
    return int(requests.output_tokens[counted].sum()) / steps if steps else None


def steady_window(requests: Requests, concurrency: int | None) -> Window | None:
    """Find the stretch in which the load was what the level says, without its start and its end.

    Closed loop: from when all slots have had their first token (the prefills of the start are
    over) until the first slot stays empty, which is the first end after the last send. Open loop:
    from one median E2E after the first send, when as many requests end as come, to the last
    send. None where that leaves nothing.
    """
    answered = np.flatnonzero(requests.lengths > 0)
    if not answered.size:
        return None
    order = answered[np.argsort(requests.sent_ns[answered], kind="stable")]
    sent, ended = requests.sent_ns[order], requests.end_ns[order]
    if concurrency is None:
        typical = float(np.median(requests.e2e_ns[order]))
        window = Window(int(sent[0]) + round(typical), int(sent[-1]))
    else:
        after = ended[ended > sent[-1]]
        if not after.size:
            return None
        start = int(requests.first_ns[order[:concurrency]].max())
        window = Window(start, int(after.min()))
    return window if window.end_ns > window.start_ns else None


def _in_steady_order(requests: Requests, window: Window) -> Paced:
    """Take the time per token of the requests within the steady window, as they ended."""
    first = np.where(requests.first_text_ns > 0, requests.first_text_ns, requests.first_ns)
    counted = (
        requests.finished
        & (first > 0)
        & (requests.output_tokens > 1)
        & (requests.sent_ns >= window.start_ns)
        & (requests.end_ns <= window.end_ns)
    )
    order = np.argsort(requests.end_ns[counted], kind="stable")
    ends, tokens = requests.end_ns[counted][order], requests.output_tokens[counted][order]
    pace = (ends - first[counted][order]) / (tokens - 1)
    return Paced((ends - requests.intended_ns.min()) / _NS_PER_S, pace)


def mean_in_flight(requests: Requests, window: Window) -> float:
    """Requests in flight within a window, averaged over its time."""
    ends = np.minimum(requests.end_ns, window.end_ns)
    overlap = np.maximum(ends - np.maximum(requests.sent_ns, window.start_ns), 0)
    return int(overlap.sum()) / (window.end_ns - window.start_ns)


def _duration_s(requests: Requests) -> float:
    if not len(requests.end_ns):
        return 0.0
    return int(requests.end_ns.max() - requests.intended_ns.min()) / _NS_PER_S


def _finished(requests: Requests) -> _Finished:
    """Take the finished ones; where no text ever came, TTFT is that of the first token."""
    done, first = requests.finished, requests.first_ns
    text_ns = np.where(requests.first_text_ns > 0, requests.first_text_ns, first)
    return _Finished(
        ttft=(text_ns - requests.intended_ns)[done],
        e2e=requests.e2e_ns[done],
        tokens=requests.output_tokens[done],
        text=((requests.first_text_ns > 0) | (requests.lengths > 0))[done],
        first_token=(first - requests.intended_ns)[done & (requests.lengths > 0)],
    )


def _counts(requests: Requests, done: _Finished, duration_s: float) -> dict[str, float]:
    completed = len(done.e2e)
    return {
        "duration": duration_s,
        "completed": completed,
        "failed": len(requests.finished) - completed,
        "total_input_tokens": _total(requests.prompt_tokens[requests.finished]),
        "total_output_tokens": int(done.tokens.sum()),
        "cached_tokens": _total(requests.cached_tokens[requests.finished]),
    }


def _total(counts: Times) -> int:
    return int(counts[counts != UNKNOWN].sum())


def _rates(counts: Mapping[str, float], done: _Finished, duration_s: float) -> dict[str, float]:
    tokens_in, tokens_out = counts["total_input_tokens"], counts["total_output_tokens"]
    return {
        "request_throughput": counts["completed"] / duration_s,
        "input_throughput": tokens_in / duration_s,
        "output_throughput": tokens_out / duration_s,
        "total_throughput": (tokens_in + tokens_out) / duration_s,
        "concurrency": int(done.e2e.sum()) / _NS_PER_S / duration_s,
    }


def _goodput(requests: Requests, done: _Finished, duration_s: float, slo: Slo) -> dict[str, float]:
    if slo == FREE:
        return {}
    kept = int(_keeps(done, slo).sum())
    return {
        "request_goodput": kept / duration_s,
        "slo_attainment": kept / len(requests.finished),
    }


def _keeps(done: _Finished, slo: Slo) -> Flags:
    """Tell which are within every bound; one without a second token has no TPOT."""
    kept = np.ones(len(done.e2e), bool)
    if slo.ttft_ms is not None:
        kept &= ~done.text | (done.ttft <= slo.ttft_ms * _NS_PER_MS)
    if slo.tpot_ms is not None:
        kept &= ~done.has_tpot | (done.tpot <= slo.tpot_ms * _NS_PER_MS)
    if slo.e2e_ms is not None:
        kept &= done.e2e <= slo.e2e_ms * _NS_PER_MS
    return kept


def _latencies(done: _Finished, told: Tally) -> dict[str, float]:
    per_chunk = [Part(gaps) for gaps in told.gaps.values()]
    per_token = [Part(gaps, tokens) for tokens, gaps in told.gaps.items() if tokens]
    e2e = whole(done.e2e)
    found = _named("ttft", whole(done.ttft[done.text]))
    found |= _named("tpot", whole(done.tpot[done.has_tpot]))
    found |= _named("itl", per_token)
    found |= _named("e2e_latency", e2e)
    found |= _named("icl", per_chunk, _BRIEF)
    found |= _named("first_token", whole(done.first_token), _BRIEF)
    if len(done.e2e) >= _FEWEST_FOR_QUARTILES:
        low, high = percentile(e2e, 25), percentile(e2e, 75)
        found["e2e_outlier_share"] = float((done.e2e > high + 3 * (high - low)).mean())
    if per_chunk:
        found["max_icl_ms"] = max(int(part.ordered[-1]) for part in per_chunk) / _NS_PER_MS
    return found


def _named(
    name: str, parts_ns: Sequence[Part], wanted: Sequence[str] = STATISTICS
) -> dict[str, float]:
    found = statistics(parts_ns, wanted)
    return {f"{key}_{name}_ms": value / _NS_PER_MS for key, value in found.items()}


def _peaks(requests: Requests, told: Tally) -> dict[str, float]:
    if not len(requests.end_ns):
        return {}
    return {
        "max_output_tokens_per_s": told.busiest,
        "max_concurrent_requests": float(_most_in_flight(requests)),
    }


def _most_in_flight(requests: Requests) -> int:
    """Count sends less ends up to each send; an end and a send at one moment don't overlap."""
    sent = np.sort(requests.sent_ns)
    before = np.searchsorted(np.sort(requests.end_ns), sent, side="right")
    return int((np.arange(1, len(sent) + 1) - before).max())
