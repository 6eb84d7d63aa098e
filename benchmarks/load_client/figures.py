"""From a run to its figures: what the client says against what the server knows."""

from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.load_client.clients import Run

NAMES = {"p50": "median", "p99": "p99"}


def figures_of(run: Run, start_up_s: float) -> dict[str, float]:
    """CPU seconds per million tokens, tokens per second, and the errors in percent."""
    tokens = run.truth.tokens
    found = {
        "cpu_s_per_m": (run.cpu_s - start_up_s) / tokens * 1e6,
        "tokens_per_s": tokens / float(run.report["duration"]),
        "late_writes_%": 100 * run.server["late_over_1ms"] / max(1, run.server["events"]),
    }
    for name, true in (
        ("itl", run.truth.itl_ms),
        ("ttft", run.truth.ttft_ms),
        ("tpot", run.truth.tpot_ms),
    ):
        for percentile, ours in NAMES.items():
            # The log has writes, so gaps between chunks, which is what others call ITL.
            said = "icl" if name == "itl" and run.client == "ours" else name
            key = f"{name}_{percentile}" if run.client == "reader" else f"{ours}_{said}_ms"
            if key in run.report and true.size:
                real = float(np.percentile(true, int(percentile[1:])))
                found[f"{name}_{percentile}_%"] = 100 * (run.report[key] / real - 1) if real else 0
    return found


def open_loop(run: Run, parquet: Path) -> dict[str, float]:
    """Of an open loop: the achieved rate against the drawn one, and how late the sends were."""
    sent = pl.read_parquet(parquet).filter(~pl.col("warmup"))
    late_ms = (sent["sent_ns"] - sent["intended_ns"]).to_numpy() / 1e6
    drawn = np.ptp(sent["intended_ns"].to_numpy())
    return {
        "rate_%": 100 * float(drawn / np.ptp(run.truth.arrivals_ns)),
        "sends_within_1ms_%": 100 * float((late_ms <= 1.0).mean()),
        "send_late_p99_ms": float(np.percentile(late_ms, 99)),
    }
