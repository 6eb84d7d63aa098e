"""The metrics that objectives and constraints may name.

The names are those of `sglang.bench_serving`; percentiles are of the pooled requests of one run.
"""

_STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
_LATENCIES = ("ttft", "tpot", "itl", "e2e_latency")

METRIC_NAMES: tuple[str, ...] = (
    "request_throughput",
    "input_throughput",
    "output_throughput",
    "total_throughput",
    "concurrency",
    "accept_length",
    *(f"{statistic}_{latency}_ms" for latency in _LATENCIES for statistic in _STATISTICS),
)
"""Every metric that a level's result bears and a sweep file may name."""
