"""The metrics that objectives and constraints may name.

The names are those of `sglang.bench_serving`; percentiles are of the pooled requests of one run.
"""

_STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
_LATENCIES = ("ttft", "tpot", "itl", "e2e_latency")

LOAD_METRIC_NAMES: tuple[str, ...] = (
    "request_throughput",
    "input_throughput",
    "output_throughput",
    "total_throughput",
    "concurrency",
    "accept_length",
    *(f"{statistic}_{latency}_ms" for latency in _LATENCIES for statistic in _STATISTICS),
)
"""What every level's result bears of these."""

LARGEST = {"request_rate": "largest_request_rate", "concurrency": "largest_concurrency"}
"""What a workload's `largest` is `of` -> the metric that tells it."""

METRIC_NAMES = (
    *LOAD_METRIC_NAMES,
    "request_goodput",
    "output_tokens_per_joule",
    *LARGEST.values(),
)
"""Every metric that a sweep file may name; the goodput is known where the workload has an `slo`,
the energy where nvidia-smi tells the power, the largest level where the workload looks for it."""
