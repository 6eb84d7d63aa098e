"""How long the store takes to summarise very many requests, beside DuckDB on the same files.

    python -m benchmarks.store_scale --requests 500000 --folder FOLDER

writes a store of 100 trials (unless the folder has it already), each with two levels in two
repeats, 100 chunks a request; works every metric of every run out of it; and asks DuckDB for the
part of the metrics that SQL can say (counts, rates, and mean, deviation, median, p90, p95 and p99
of the five latencies), file after file, which is the way in which DuckDB needs least memory. Both
may use two threads. Each side runs in a process of its own, in turn, and its peak memory is told.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from tasks.results.recount import recount
from tasks.results.schema import REQUESTS, polars_schema

CHUNKS = 100
LEVELS = ("c16", "c64")
REPEATS = (1, 2)
NS_PER_MS = 1_000_000

_LATENCIES = {
    "ttft": "first_text_ns - intended_ns",
    "e2e_latency": "end_ns - intended_ns",
    "tpot": "(end_ns - first_text_ns) / (completion_tokens - 1)",
}
_STATISTICS = "avg({0}) / 1e6, stddev_pop({0}) / 1e6, quantile_cont({0}, [0.5, 0.9, 0.95, 0.99])"
_QUERY = """
WITH measured AS (
  SELECT * FROM read_parquet('{path}') WHERE NOT warmup
), requests AS (
  SELECT workload, level, repeat, count(*) AS completed,
    (max(end_ns) - min(intended_ns)) / 1e9 AS duration,
    sum(completion_tokens) / ((max(end_ns) - min(intended_ns)) / 1e9) AS output_throughput,
    sum(prompt_tokens) AS total_input_tokens, sum(cached_tokens) AS cached_tokens, {latencies}
  FROM measured WHERE outcome = 'finished' GROUP BY ALL
), gaps AS (
  SELECT workload, level, repeat,
    unnest(arrival_ns[2:]) - unnest(arrival_ns[:-2]) AS gap,
    unnest(cumulative_tokens[2:]) - unnest(cumulative_tokens[:-2]) AS tokens
  FROM measured WHERE outcome = 'finished'
), chunks AS (
  SELECT workload, level, repeat, max(gap) / 1e6 AS max_icl_ms, {icl}
  FROM gaps GROUP BY ALL
), tokens AS (
  SELECT workload, level, repeat, {itl}
  FROM (SELECT workload, level, repeat, gap / tokens AS each,
          unnest(range(tokens)) FROM gaps) GROUP BY ALL
)
SELECT * FROM requests JOIN chunks USING (workload, level, repeat)
JOIN tokens USING (workload, level, repeat)
"""


def write_store(folder: Path, requests: int, trials: int) -> list[Path]:
    """Write the trials that aren't there yet; every tenth chunk brings two tokens."""
    paths = [folder / f"trial-{number:03}" / "requests.parquet" for number in range(trials)]
    for number, path in enumerate(paths):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, requests // trials, np.random.default_rng(number))
    return paths


def _write(path: Path, requests: int, random: np.random.Generator) -> None:
    runs = [(level, repeat) for repeat in REPEATS for level in LEVELS]
    count = requests // len(runs)
    frames = [_run(level, repeat, count, random) for level, repeat in runs]
    pl.concat(frames).write_parquet(path.with_suffix(".partial"), compression="zstd")
    path.with_suffix(".partial").rename(path)


def _run(level: str, repeat: int, count: int, random: np.random.Generator) -> pl.DataFrame:
    gaps = random.lognormal(math.log(11 * NS_PER_MS), 0.25, (count, CHUNKS)).astype(np.int64)
    gaps[:, 0] *= 20
    slots = int(level[1:])
    sent = 10**13 + np.arange(count, dtype=np.int64) * (1_300 * NS_PER_MS // slots)
    arrivals = sent[:, None] + np.cumsum(gaps, axis=1)
    tokens = np.cumsum(1 + (random.random((count, CHUNKS)) < 0.1), axis=1)
    columns = {
        "workload": "chat",
        "level": level,
        "repeat": repeat,
        "index": np.arange(count),
        "warmup": np.arange(count) < slots,
        "outcome": "finished",
        "intended_ns": sent,
        "sent_ns": sent,
        "first_byte_ns": arrivals[:, 0] - 1,
        "first_text_ns": arrivals[:, 0],
        "end_ns": arrivals[:, -1] + 50_000,
        "arrival_ns": _lists(arrivals),
        "cumulative_tokens": _lists(tokens),
        "prompt_tokens": random.integers(900, 1_100, count),
        "completion_tokens": tokens[:, -1],
        "cached_tokens": 0,
        "requested_tokens": tokens[:, -1],
        "finish_reason": "length",
        "http_status": 200,
        "error": None,
        "verify_steps": None,
    }
    schema = polars_schema(REQUESTS)
    frame = pl.DataFrame({"index": columns.pop("index")})
    added = [pl.Series(n, v) if isinstance(v, np.ndarray) else v for n, v in columns.items()]
    named = zip(columns, added, strict=True)
    frame = frame.with_columns(
        (v if isinstance(v, pl.Series) else pl.lit(v)).alias(name) for name, v in named
    )
    return frame.select(pl.col(name).cast(kind) for name, kind in schema.items())


def _lists(values: np.ndarray) -> pl.Series:
    return pl.Series(values.reshape(-1)).reshape(values.shape).arr.to_list()


def ours(paths: list[Path]) -> dict[str, dict[str, float]]:
    """Summarise with this project."""
    found: dict[str, dict[str, float]] = {}
    for each in recount(paths):
        for run in each.runs:
            found[f"{each.path.parent.name} {run.level} {run.repeat}"] = dict(run.metrics)
    return found


def duckdb(paths: list[Path]) -> dict[str, dict[str, float]]:
    """Summarise with DuckDB, a file at a time."""
    import duckdb as database

    names = [*_LATENCIES]
    latencies = ", ".join(_named(name, f"({_LATENCIES[name]})") for name in names)
    found: dict[str, dict[str, float]] = {}
    connection = database.connect(config={"threads": 2, "memory_limit": "7GB"})
    for path in paths:
        query = _QUERY.format(
            path=path, latencies=latencies, icl=_named("icl", "gap"), itl=_named("itl", "each")
        )
        result = connection.execute(query)
        columns = [column[0] for column in result.description]
        for values in result.fetchall():
            row = dict(zip(columns, values, strict=True))
            key = f"{path.parent.name} {row['level']} {row['repeat']}"
            found[key] = _flat(row)
    return found


def _named(name: str, value: str) -> str:
    mean, std, quantiles = _STATISTICS.format(value).split(", ", 2)
    return f"{mean} AS mean_{name}_ms, {std} AS std_{name}_ms, {quantiles} AS quantiles_{name}"


def _flat(row: dict) -> dict[str, float]:
    flat = {k: v for k, v in row.items() if isinstance(v, int | float)}
    for name, values in row.items():
        if name.startswith("quantiles_"):
            what = name.removeprefix("quantiles_")
            for key, value in zip(("median", "p90", "p95", "p99"), values, strict=True):
                flat[f"{key}_{what}_ms"] = value / 1e6
    return flat


def _agree(mine: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> int:
    """Count the figures that both tell; raise where they differ."""
    count = 0
    for run, metrics in theirs.items():
        for name in metrics.keys() & mine[run].keys():
            assert math.isclose(metrics[name], mine[run][name], rel_tol=1e-9), (run, name)
            count += 1
    return count


def _side(name: str, paths: list[Path]) -> None:
    """Run one side in this process and print what it took, as JSON."""
    began = time.perf_counter()
    found = {"ours": ours, "duckdb": duckdb}[name](paths)
    took = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    print(json.dumps({"took_s": took, "cpu_s": cpu, "peak_bytes": peak, "found": found}))


def main() -> None:
    """Write the store, run both sides in turn, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=500_000)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--side", choices=("ours", "duckdb"))
    asked = parser.parse_args()
    began = time.perf_counter()
    paths = write_store(asked.folder, asked.requests, asked.trials)
    if asked.side:
        _side(asked.side, paths)
        return
    size = sum(path.stat().st_size for path in paths)
    print(f"{asked.requests:,} requests, {asked.requests * CHUNKS:,} chunks, {size / 1e9:.2f} GB,")
    print(f"written in {time.perf_counter() - began:.1f} s")
    results: dict[str, dict] = {}
    for _ in range(asked.rounds):
        for side in ("ours", "duckdb"):
            command = [sys.executable, "-m", "benchmarks.store_scale", *sys.argv[1:]]
            command += ["--side", side]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results[side] = json.loads(said)
            took, cpu, peak = (results[side][key] for key in ("took_s", "cpu_s", "peak_bytes"))
            memory = f"{peak / 1e9:.2f} GB at most"
            print(f"{side:8} {took:7.2f} s, {cpu:7.2f} s of CPU, {memory}", flush=True)
    count = _agree(results["ours"]["found"], results["duckdb"]["found"])
    print(f"{count:,} figures agree to 9 digits")


if __name__ == "__main__":
    main()
