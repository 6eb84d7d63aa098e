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
from numpy.typing import NDArray

from settings.workload import Slo
from tasks.domain.distribution import Part, Values, by_number, percentile, statistics, whole
from tasks.domain.steadiness import Paced, steadiness

FREE = Slo()
UNKNOWN = -1
"""A count that the server didn't give."""

_FEWEST_FOR_QUARTILES = 4
_BRIEF = ("mean", "median", "p99")
_NS_PER_MS = 1e6
_NS_PER_S = 1e9

Times = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a run, in ns of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.start_ns) / _NS_PER_S


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of many requests in columns, request after request.

    `tokens` are those that a chunk brought, `gaps` the ns since the same request's chunk before, 0
    for a request's first.
    `follows` marks the chunks whose gap counts for ITL: not a request's first, nor one whose
    predecessor came before any text. `finished` marks the chunks of finished requests, and is
    None where all are.
    """

    times: Times
    tokens: Times
    gaps: Values
    follows: Flags
    finished: Flags | None


@dataclass(frozen=True, slots=True)
class Requests:
    """The measured requests of one run in columns, without warm-up; times are ns.

    `first_text_ns` is 0 where no text came. The counts are the server's, `UNKNOWN` where it gave
    none. `lengths` says how many chunks with tokens each request had: `arrival_ns` and
    `cumulative_tokens` hold them one request after the other.
    """

    intended_ns: Times
    sent_ns: Times
    end_ns: Times
    first_text_ns: Times
    prompt_tokens: Times
    completion_tokens: Times
    cached_tokens: Times
    verify_steps: Times
    finished: Flags
    lengths: Times
    arrival_ns: Times
    cumulative_tokens: Times

    @property
    def first_ns(self) -> Times:
        """When each request's first chunk with tokens arrived; 0 where none did."""
        return self._at(np.cumsum(self.lengths) - self.lengths, self.arrival_ns)

    @property
    def output_tokens(self) -> Times:
        """Generated tokens: the server's count, or what its chunks add up to."""
        counted = self._at(np.cumsum(self.lengths) - 1, self.cumulative_tokens)
        return np.where(self.completion_tokens == UNKNOWN, counted, self.completion_tokens)

    @property
    def e2e_ns(self) -> Times:
        """From the intended send to the end."""
        return self.end_ns - self.intended_ns

    def _at(self, places: Times, chunks: Times) -> Times:
        """Look a chunk of each request up; 0 where it has none."""
        found = np.zeros(len(self.lengths), np.int64)
        having = self.lengths > 0
        found[having] = chunks[places[having]]
        return found


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
    chunks = chunks_of(requests)
    metrics |= _latencies(done, chunks)
    metrics |= _peaks(requests, chunks)
    steady = steady_throughput(requests, concurrency, chunks)
    if steady is not None:
        metrics["steady_output_throughput"] = steady
    metrics |= steadiness(_in_steady_order(requests, concurrency))
    accept_length = accepted(requests) or accept_length
    if accept_length is not None:
        metrics["accept_length"] = accept_length
    return metrics


def chunks_of(requests: Requests) -> Chunks:
    """Work out what each chunk brought and how long it took."""
    times, counts, lengths = requests.arrival_ns, requests.cumulative_tokens, requests.lengths
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    gaps, tokens = np.empty(len(times)), np.empty_like(counts)
    np.subtract(times[1:], times[:-1], out=gaps[1:], casting="unsafe")  # exact below 104 days
    np.subtract(counts[1:], counts[:-1], out=tokens[1:])
    gaps[starts], tokens[starts] = 0, counts[starts]
    follows = np.ones(len(times), bool)
    if (requests.first_text_ns > requests.first_ns).any():
        follows[1:] = times[:-1] >= np.repeat(requests.first_text_ns, lengths)[1:]
    follows[starts] = False
    finished = requests.finished
    return Chunks(
        times, tokens, gaps, follows, None if finished.all() else np.repeat(finished, lengths)
    )


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


def _in_steady_order(requests: Requests, concurrency: int | None) -> Paced:
    """Take the time per token of the requests within the steady window, as they ended."""
    window = steady_window(requests, concurrency)
    if window is None:
        return Paced.none()
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


def steady_throughput(
    requests: Requests, concurrency: int | None, chunks: Chunks | None = None
) -> float | None:
    """Tokens a second that arrived within the steady window, failed requests' included.

    `chunks` are those of the requests, where the caller has them already.
    """
    window = steady_window(requests, concurrency)
    if window is None:
        return None
    chunks = chunks or chunks_of(requests)
    inside = (chunks.times > window.start_ns) & (chunks.times <= window.end_ns)
    return float(np.sum(chunks.tokens, where=inside)) / window.length_s


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


def _latencies(done: _Finished, chunks: Chunks) -> dict[str, float]:
    counted = chunks.follows if chunks.finished is None else chunks.follows & chunks.finished
    gaps = by_number(chunks.gaps, chunks.tokens, counted)
    per_token = [part if n == 1 else Part(part.ordered / n, n) for n, part in gaps.items() if n]
    e2e = whole(done.e2e)
    found = _named("ttft", whole(done.ttft[done.text]))
    found |= _named("tpot", whole(done.tpot[done.has_tpot]))
    found |= _named("itl", per_token)
    found |= _named("e2e_latency", e2e)
    for name, parts in (("icl", [*gaps.values()]), ("first_token", whole(done.first_token))):
        every = _named(name, parts)
        found |= {key: value for key, value in every.items() if key.split("_")[0] in _BRIEF}
    if len(done.e2e) >= _FEWEST_FOR_QUARTILES:
        low, high = percentile(e2e, 25), percentile(e2e, 75)
        found["e2e_outlier_share"] = float((done.e2e > high + 3 * (high - low)).mean())
    if gaps:
        found["max_icl_ms"] = max(float(p.ordered[-1]) for p in gaps.values()) / _NS_PER_MS
    return found


def _named(name: str, parts_ns: Sequence[Part]) -> dict[str, float]:
    found = statistics(parts_ns)
    return {f"{key}_{name}_ms": value / _NS_PER_MS for key, value in found.items()}


def _peaks(requests: Requests, chunks: Chunks) -> dict[str, float]:
    if not len(requests.end_ns):
        return {}
    start = int(requests.intended_ns.min())
    return {
        "max_output_tokens_per_s": _busiest(chunks, start),
        "max_concurrent_requests": float(_most_in_flight(requests)),
    }


def _busiest(chunks: Chunks, start_ns: int) -> float:
    """Sum the tokens of each second; a request's chunks of one second stand together."""
    if not chunks.times.size:
        return 0.0
    seconds = chunks.times - start_ns
    seconds //= int(_NS_PER_S)
    firsts = np.flatnonzero(np.concatenate(([True], seconds[1:] != seconds[:-1])))
    tokens = np.add.reduceat(chunks.tokens, firsts)
    return float(np.bincount(np.maximum(seconds[firsts], 0), weights=tokens).max())


def _most_in_flight(requests: Requests) -> int:
    """Count sends less ends up to each send; an end and a send at one moment don't overlap."""
    sent = np.sort(requests.sent_ns)
    before = np.searchsorted(np.sort(requests.end_ns), sent, side="right")
    return int((np.arange(1, len(sent) + 1) - before).max())
