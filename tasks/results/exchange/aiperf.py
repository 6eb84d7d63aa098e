"""The `profile_export_aiperf.json` of NVIDIA's aiperf, schema 1.5: one file a run.

A metric is `{unit, avg, p50 …}`. What aiperf calls inter-token latency is a mean per request, our
TPOT; the gaps between chunks are its inter-chunk latency. Its standard deviation is that of a
sample, ours that of the requests themselves: std · √(n / (n - 1)).
"""

import math
from datetime import UTC, datetime

from tasks.results.exchange.runs import Json, StoredRun

SCHEMA = "1.5"
FILE = "profile_export_aiperf.json"

_LATENCIES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "icl",
    "request_latency": "e2e_latency",
}
_STATISTICS = {"avg": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
_SCALARS = {
    "request_throughput": ("request_throughput", "requests/sec"),
    "request_count": ("completed", "requests"),
    "error_request_count": ("failed", "requests"),
    "output_token_throughput": ("output_throughput", "tokens/sec"),
    "total_token_throughput": ("total_throughput", "tokens/sec"),
    "total_output_tokens": ("total_output_tokens", "tokens"),
    "benchmark_duration": ("duration", "sec"),
    "goodput": ("request_goodput", "requests/sec"),
}


def write_run(run: StoredRun) -> Json:
    """Build the object of one run; what nobody could tell is left out, as aiperf does."""
    metrics = run.level.metrics
    at = datetime.fromtimestamp(run.stored.record.started_at, UTC).isoformat()
    written: Json = {"schema_version": SCHEMA, "benchmark_id": run.name, "start_time": at}
    written["was_cancelled"] = False
    for theirs, (ours, unit) in _SCALARS.items():
        if ours in metrics:
            written[theirs] = {"unit": unit, "avg": metrics[ours]}
    for theirs, ours in _LATENCIES.items():
        found = _latency(run, ours)
        if found:
            written[theirs] = {"unit": "ms", **found}
    written["run_info"] = {
        "benchmark_id": run.name,
        "trial": run.level.repeat,
        "variation_label": run.result.trial.label,
        "variation_values": dict(run.result.trial.axes),
    }
    return {**written, "sglang_sweep": run.provenance}


def _latency(run: StoredRun, name: str) -> Json:
    metrics = run.level.metrics
    found = {
        theirs: metrics[f"{ours}_{name}_ms"]
        for theirs, ours in _STATISTICS.items()
        if f"{ours}_{name}_ms" in metrics
    }
    count = round(metrics.get("completed", 0))
    std = metrics.get(f"std_{name}_ms")
    if std is not None and count > 1:
        found["std"] = std * math.sqrt(count / (count - 1))
    if found and name != "icl":
        found["count"] = count
    return found
