"""From the records of one run to its metrics, under `sglang.bench_serving`'s names.

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
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from settings.workload import Slo
from tasks.domain.measurement import RequestOutcome, RequestRecord

FREE = Slo()
_PERCENTILES = (90, 95, 99)
_BRIEF = ("mean", "median", "p99")
_NS_PER_MS = 1e6
_NS_PER_S = 1e9

Values = NDArray[np.float64]
Times = NDArray[np.int64]


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

    `tokens` are those that a chunk brought, `gaps` the ns since the same request's chunk before.
    `follows` marks the chunks whose gap counts for ITL: not a request's first, nor one whose
    predecessor came before any text. `finished` marks the chunks of finished requests.
    """

    times: Times
    tokens: Times
    gaps: Times
    follows: NDArray[np.bool_]
    finished: NDArray[np.bool_]


def compute_metrics(
    records: Sequence[RequestRecord],
    concurrency: int | None = None,
    accept_length: float | None = None,
    slo: Slo = FREE,
) -> dict[str, float]:
    """Compute every metric that the records of one run give; warm-up requests don't count.

    `concurrency` is the closed loop's, None for the open loop; `accept_length` is the server's,
    used where the requests don't tell.
    """
    measured = [record for record in records if not record.warmup]
    finished = [record for record in measured if record.outcome is RequestOutcome.FINISHED]
    duration_s = duration_of(measured)
    metrics = _counts(measured, finished, duration_s)
    if duration_s > 0:
        metrics |= _rates(metrics, finished, duration_s)
        metrics |= _goodput(measured, finished, duration_s, slo)
    chunks = chunks_of(measured)
    metrics |= _latencies(finished, chunks)
    metrics |= _peaks(measured, chunks)
    steady = steady_throughput(measured, concurrency, chunks)
    if steady is not None:
        metrics["steady_output_throughput"] = steady
    accept_length = accepted(finished) or accept_length
    if accept_length is not None:
        metrics["accept_length"] = accept_length
    return metrics


def output_tokens(record: RequestRecord) -> int:
    """Generated tokens: the server's count, or what its chunks add up to."""
    if record.completion_tokens is not None:
        return record.completion_tokens
    return record.cumulative_tokens[-1] if record.cumulative_tokens else 0


def duration_of(records: Sequence[RequestRecord]) -> float:
    """Seconds from the first intended send to the last end; 0 of nothing."""
    if not records:
        return 0.0
    start = min(record.intended_ns for record in records)
    return (max(record.end_ns for record in records) - start) / _NS_PER_S


def ttft_ns(record: RequestRecord) -> int | None:
    """Time to the first text; where no text ever came, to the first token."""
    at = record.first_text_ns or next(iter(record.arrival_ns), None)
    return None if at is None else at - record.intended_ns


def tpot_ns(record: RequestRecord) -> float | None:
    """(E2E - TTFT) / (n - 1); None of fewer than two tokens."""
    first, tokens = ttft_ns(record), output_tokens(record)
    if first is None or tokens < 2:
        return None
    return (record.end_ns - record.intended_ns - first) / (tokens - 1)


def chunks_of(records: Sequence[RequestRecord]) -> Chunks:
    """Put the chunks of all requests into columns: once, since there may be millions."""
    lengths = np.array([len(record.arrival_ns) for record in records], np.int64)
    times = _column(record.arrival_ns for record in records)
    counts = _column(record.cumulative_tokens for record in records)
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    tokens, gaps = np.diff(counts, prepend=0), np.diff(times, prepend=0)
    tokens[starts] = counts[starts]
    first_text = np.array([record.first_text_ns or 0 for record in records], np.int64)
    follows = times - gaps >= np.repeat(first_text, lengths)
    follows[starts] = False
    finished = [record.outcome is RequestOutcome.FINISHED for record in records]
    return Chunks(times, tokens, gaps, follows, np.repeat(np.array(finished, bool), lengths))


def _column(parts: Iterable[Sequence[int]]) -> Times:
    return np.concatenate([np.empty(0, np.int64), *(np.asarray(part, np.int64) for part in parts)])


def accepted(finished: Iterable[RequestRecord]) -> float | None:
    """Tokens per verification step over this run's requests; None without speculative decoding."""
    steps = tokens = 0
    for record in finished:
        if record.verify_steps:
            steps += record.verify_steps
            tokens += output_tokens(record)
    return tokens / steps if steps else None


def steady_window(records: Sequence[RequestRecord], concurrency: int | None) -> Window | None:
    """Find the stretch in which the load was what the level says, without its start and its end.

    Closed loop: from when all slots have had their first token (the prefills of the start are
    over) until the first slot stays empty, which is the first end after the last send. Open loop:
    from one median E2E after the first send, when as many requests end as come, to the last
    send. None where that leaves nothing.
    """
    sent = sorted((r for r in records if r.arrival_ns), key=lambda record: record.sent_ns)
    if not sent:
        return None
    last = sent[-1].sent_ns
    if concurrency is None:
        typical = float(np.median([record.end_ns - record.intended_ns for record in sent]))
        window = Window(sent[0].sent_ns + round(typical), last)
    else:
        start = max(record.arrival_ns[0] for record in sent[:concurrency])
        window = Window(start, min(record.end_ns for record in sent if record.end_ns > last))
    return window if window.end_ns > window.start_ns else None


def steady_throughput(
    records: Sequence[RequestRecord], concurrency: int | None, chunks: Chunks | None = None
) -> float | None:
    """Tokens a second that arrived within the steady window, failed requests' included.

    `chunks` are those of the records, where the caller has them already.
    """
    window = steady_window(records, concurrency)
    if window is None:
        return None
    chunks = chunks or chunks_of(records)
    inside = (chunks.times > window.start_ns) & (chunks.times <= window.end_ns)
    return float(chunks.tokens[inside].sum()) / window.length_s


def mean_in_flight(records: Sequence[RequestRecord], window: Window) -> float:
    """Requests in flight within a window, averaged over its time."""
    overlap = sum(
        max(0, min(record.end_ns, window.end_ns) - max(record.sent_ns, window.start_ns))
        for record in records
    )
    return overlap / (window.end_ns - window.start_ns)


def _counts(
    measured: Sequence[RequestRecord], finished: Sequence[RequestRecord], duration_s: float
) -> dict[str, float]:
    return {
        "duration": duration_s,
        "completed": len(finished),
        "failed": len(measured) - len(finished),
        "total_input_tokens": sum(record.prompt_tokens or 0 for record in finished),
        "total_output_tokens": sum(map(output_tokens, finished)),
        "cached_tokens": sum(record.cached_tokens or 0 for record in finished),
    }


def _rates(
    counts: Mapping[str, float], finished: Sequence[RequestRecord], duration_s: float
) -> dict[str, float]:
    e2e_s = sum(record.end_ns - record.intended_ns for record in finished) / _NS_PER_S
    tokens_in, tokens_out = counts["total_input_tokens"], counts["total_output_tokens"]
    return {
        "request_throughput": counts["completed"] / duration_s,
        "input_throughput": tokens_in / duration_s,
        "output_throughput": tokens_out / duration_s,
        "total_throughput": (tokens_in + tokens_out) / duration_s,
        "concurrency": e2e_s / duration_s,
    }


def _goodput(
    measured: Sequence[RequestRecord],
    finished: Sequence[RequestRecord],
    duration_s: float,
    slo: Slo,
) -> dict[str, float]:
    if slo == FREE:
        return {}
    kept = sum(keeps(record, slo) for record in finished)
    return {"request_goodput": kept / duration_s, "slo_attainment": kept / len(measured)}


def keeps(record: RequestRecord, slo: Slo) -> bool:
    """Whether a finished request is within every bound; one without a second token has no TPOT."""
    bounds = (
        (slo.ttft_ms, ttft_ns(record)),
        (slo.tpot_ms, tpot_ns(record)),
        (slo.e2e_ms, record.end_ns - record.intended_ns),
    )
    return all(
        most_ms is None or value is None or value <= most_ms * _NS_PER_MS
        for most_ms, value in bounds
    )


def _latencies(finished: Sequence[RequestRecord], chunks: Chunks) -> dict[str, float]:
    counted = chunks.follows & chunks.finished
    gaps, tokens = chunks.gaps[counted], chunks.tokens[counted]
    e2e = [record.end_ns - record.intended_ns for record in finished]
    first = [record.arrival_ns[0] - record.intended_ns for record in finished if record.arrival_ns]
    found = _statistics("ttft", _known(map(ttft_ns, finished)))
    found |= _statistics("tpot", _known(map(tpot_ns, finished)))
    found |= _statistics("itl", np.repeat(gaps / np.maximum(tokens, 1), tokens))
    found |= _statistics("e2e_latency", np.array(e2e, np.float64))
    for name, values in (("icl", gaps), ("first_token", np.array(first))):
        every = _statistics(name, values.astype(np.float64))
        found |= {key: value for key, value in every.items() if key.split("_")[0] in _BRIEF}
    if gaps.size:
        found["max_icl_ms"] = float(gaps.max()) / _NS_PER_MS
    return found


def _statistics(name: str, values_ns: Values) -> dict[str, float]:
    """Mean, median, population standard deviation and percentiles, in ms; nothing of nothing."""
    if not values_ns.size:
        return {}
    values = np.sort(values_ns / _NS_PER_MS)
    levels = _quantiles(values, (50, *_PERCENTILES))
    names = ("median", *(f"p{percent}" for percent in _PERCENTILES))
    found = {"mean": values.mean(), "std": values.std(), **dict(zip(names, levels, strict=True))}
    return {f"{statistic}_{name}_ms": float(value) for statistic, value in found.items()}


def _quantiles(ordered: Values, percents: Sequence[int]) -> Values:
    """Percentiles of ordered values, linear between ranks, as bench_serving has them."""
    ranks = np.array(percents) / 100 * (ordered.size - 1)
    below = ranks.astype(np.int64)
    low, high = ordered[below], ordered[np.minimum(below + 1, ordered.size - 1)]
    return low + (high - low) * (ranks - below)


def _known(values: Iterable[float | None]) -> Values:
    return np.array([value for value in values if value is not None], np.float64)


def _peaks(measured: Sequence[RequestRecord], chunks: Chunks) -> dict[str, float]:
    if not measured:
        return {}
    start = min(record.intended_ns for record in measured)
    seconds = np.maximum((chunks.times - start) // int(_NS_PER_S), 0)
    by_second = np.bincount(seconds, weights=chunks.tokens) if seconds.size else [0]
    # An end and a send at the same moment don't overlap: ends (-1) sort before sends (+1).
    edges = [(r.sent_ns, 1) for r in measured] + [(r.end_ns, -1) for r in measured]
    in_flight = np.cumsum([step for _, step in sorted(edges)])
    return {
        "max_output_tokens_per_s": float(max(by_second)),
        "max_concurrent_requests": float(in_flight.max()),
    }
