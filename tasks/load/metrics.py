"""The metrics of requests that were just seen, as `tasks.domain.metrics` defines them."""

from collections.abc import Iterable, Sequence

import numpy as np

from settings.workload import Slo
from tasks.domain import metrics
from tasks.domain.measurement import RequestOutcome, RequestRecord
from tasks.domain.metrics import FREE
from tasks.domain.requests import UNKNOWN, Requests, Times, Window

_NS_PER_S = 1e9


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
    return metrics.metrics_of(in_columns(measured), concurrency, accept_length, slo)


def in_columns(records: Sequence[RequestRecord]) -> Requests:
    """Put the requests and all their chunks into columns: once, since there may be millions."""
    return Requests(
        intended_ns=_column(record.intended_ns for record in records),
        sent_ns=_column(record.sent_ns for record in records),
        end_ns=_column(record.end_ns for record in records),
        first_text_ns=_column(record.first_text_ns or 0 for record in records),
        prompt_tokens=_counts(record.prompt_tokens for record in records),
        completion_tokens=_counts(record.completion_tokens for record in records),
        cached_tokens=_counts(record.cached_tokens for record in records),
        verify_steps=_counts(record.verify_steps for record in records),
        finished=np.array([r.outcome is RequestOutcome.FINISHED for r in records], bool),
        lengths=_column(len(record.arrival_ns) for record in records),
        arrival_ns=_chunk_column(record.arrival_ns for record in records),
        cumulative_tokens=_chunk_column(record.cumulative_tokens for record in records),
    )


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


def accepted(finished: Sequence[RequestRecord]) -> float | None:
    """Tokens per verification step over this run's requests; None without speculative decoding."""
    return metrics.accepted(in_columns(finished))


def steady_window(records: Sequence[RequestRecord], concurrency: int | None) -> Window | None:
    """Find the stretch in which the load was what the level says: `metrics.steady_window`."""
    return metrics.steady_window(in_columns(records), concurrency)


def mean_in_flight(records: Sequence[RequestRecord], window: Window) -> float:
    """Requests in flight within a window, averaged over its time."""
    return metrics.mean_in_flight(in_columns(records), window)


def _column(values: Iterable[int]) -> Times:
    return np.fromiter(values, np.int64)


def _counts(values: Iterable[int | None]) -> Times:
    return np.fromiter((UNKNOWN if value is None else value for value in values), np.int64)


def _chunk_column(parts: Iterable[Sequence[int]]) -> Times:
    return np.concatenate([np.empty(0, np.int64), *(np.asarray(part, np.int64) for part in parts)])
