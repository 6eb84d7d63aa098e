"""Write `docs/columns.md` from the schema: `python -m tasks.results.columns [FILE]`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from tasks.results.schema import AXIS, GPU, METRICS, REQUESTS, SUMMARY, Column

_HEAD = """# The columns of the results

Written by `python -m tasks.results.columns` from `tasks/results/schema.py`; change it there.

What is marked `sglang.bench_serving` bears the name that it has there and means the same; all else
is ours. A value that nobody could tell is null. Latencies count from the intended send, which in a
closed loop is the send itself.
"""

_FILES: tuple[tuple[str, str, tuple[Column, ...]], ...] = (
    (
        "summary.parquet",
        "A row for each run of one level: one trial, workload, level and repeat. After these "
        "columns come the sweep's axes, a column each, as "
        f"`{AXIS}cuda_graph_max_bs`, and the metrics.",
        SUMMARY,
    ),
    (
        "The metrics in summary.parquet",
        "All are Float64. A metric that isn't listed here has a column too.",
        METRICS,
    ),
    (
        "requests.parquet",
        "A row a request, in each trial's folder. Times are nanoseconds of CLOCK_MONOTONIC.",
        REQUESTS,
    ),
    (
        "gpu.parquet",
        "A row per GPU and sample, in each attempt's folder, taken while the server is measured.",
        GPU,
    ),
)


def page() -> str:
    """Write the whole page."""
    parts = [_HEAD]
    for title, text, columns in _FILES:
        parts += [f"## {title}\n\n{text}\n", "\n".join(_table(columns)) + "\n"]
    return "\n".join(parts)


def _table(columns: Iterable[Column]) -> Iterable[str]:
    yield "| column | type | unit | meaning | formula | source |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for each in columns:
        formula = f"`{each.formula}`" if each.formula else ""
        words = (f"`{each.name}`", each.kind, each.unit, each.meaning, formula, each.source)
        yield "| " + " | ".join(words) + " |"


def main() -> None:
    """Print the page, or write it to the file that is named."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
