"""The JSON lines of `sglang.bench_serving --output-file`: one object a run, appended.

Its keys and their types as of SGLang 0.5.23, whose percentiles include those of 0.5.9. What we
can't know is null: we don't tokenise the answers again. With details come the lists of
`--output-details`, in seconds; an answer's text is never kept, so those are empty.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from tasks.domain.configuration import Value
from tasks.domain.errors import InputError
from tasks.domain.sglang import BENCH_SERVING
from tasks.results.exchange.runs import SHARED, ForeignRun, Json, StoredRun
from tasks.results.schema import REQUESTS
from tasks.results.tables import readable, scan_table

_NS_PER_S = 1e9
_OWN_WORDS = ("request_goodput", "slo_attainment")
"""Written by bench_serving only where bounds were given."""

_OF_THE_LAUNCH = frozenset(
    {
        *("host", "port", "nccl_port", "random_seed", "api_key", "admin_api_key", "dist_init_addr"),
        *("log_level", "log_requests", "version", "status", "startup_time", "last_gen_throughput"),
        *("internal_states", "tokenizer_path", "served_model_name", "warmups"),
    }
)
"""What a server says of itself that differs from launch to launch and makes no configuration."""


def write_line(run: StoredRun, requests: Path | None = None) -> Json:
    """Build the object of one run; `requests` is its requests.parquet where details are wanted.

    Raises `Damaged` where that can't be read.
    """
    level, asked, configuration = run.level, run.asked, run.result.trial.configuration
    of_random = asked.dataset == "random"
    metrics = run.metrics(SHARED)
    if metrics["request_goodput"] is None:
        metrics = {name: value for name, value in metrics.items() if name not in _OWN_WORDS}
    tokens = metrics["total_input_tokens"]
    line = {
        "tag": run.name,
        "backend": "sglang",
        "dataset_name": "random-ids" if of_random else asked.dataset,
        "request_rate": math.inf if level.request_rate is None else level.request_rate,
        "max_concurrency": level.concurrency,
        "sharegpt_output_len": None,
        "random_input_len": asked.input_len,
        "random_output_len": asked.output_len,
        "random_range_ratio": 1.0,
        "server_info": {"model_path": configuration.model_path, **configuration.args},
        **metrics,
        "total_input_text_tokens": tokens,
        "total_input_vision_tokens": 0,
        "total_output_tokens_retokenized": None,
        "sglang_sweep": run.provenance,
    }
    return line if requests is None else line | details(run, requests)


def details(run: StoredRun, requests: Path) -> Json:
    """Build the lists of `--output-details`: an item a request, times in seconds."""
    level = run.level
    with readable():
        rows = (
            scan_table(requests, REQUESTS)
            .filter(
                ~pl.col("warmup"),
                pl.col("workload") == level.workload,
                pl.col("level") == level.level,
                pl.col("repeat") == level.repeat,
            )
            .sort("index")
            .collect()
        )
    first = pl.coalesce("first_text_ns", pl.col("arrival_ns").list.first())
    ttfts = rows.select((first - pl.col("intended_ns")) / _NS_PER_S).to_series().fill_null(0.0)
    tokens = pl.coalesce("completion_tokens", pl.col("cumulative_tokens").list.last())
    return {
        "input_lens": rows["prompt_tokens"].fill_null(0).to_list(),
        "output_lens": rows.select(tokens).to_series().fill_null(0).to_list(),
        "ttfts": ttfts.to_list(),
        "itls": [
            _gaps_s(np.array(times or [], np.int64), np.array(counts or [], np.int64))
            for times, counts in rows.select("arrival_ns", "cumulative_tokens").iter_rows()
        ],
        "generated_texts": [""] * rows.height,
        "errors": rows["error"].fill_null("").to_list(),
    }


def _gaps_s(times: np.ndarray, counts: np.ndarray) -> list[float]:
    """One gap a token: that of its chunk, split evenly."""
    gaps, tokens = np.diff(times) / _NS_PER_S, np.diff(counts)
    return np.repeat(gaps / np.maximum(tokens, 1), tokens).tolist()


def is_line(found: Mapping[str, object]) -> bool:
    """Whether an object is one of bench_serving's."""
    return "output_throughput" in found and "mean_e2e_latency_ms" in found


def read_lines(lines: Mapping[str, Json]) -> Iterator[ForeignRun]:
    """Read objects, each with the place where it stands; what differs between their servers is
    an axis. Raises `InputError` for an object of another kind.
    """
    servers = {place: _server(found) for place, found in lines.items()}
    varying = _varying([*servers.values()])
    for place, found in lines.items():
        if not is_line(found):
            raise InputError(place, [f"no line of {BENCH_SERVING}: no output_throughput in it"])
        axes = {name: servers[place].get(name) for name in varying}
        yield _read(place, found, axes)


def _read(place: str, found: Json, axes: Mapping[str, Value]) -> ForeignRun:
    metrics = {name: float(found[name]) for name in SHARED if _is_number(found.get(name))}
    rate, slots = found.get("request_rate"), found.get("max_concurrency")
    errors = found.get("errors")
    if errors is not None:
        metrics["failed"] = float(len(errors) - metrics.get("completed", 0))
    open_loop = slots is None and _is_number(rate)
    everything = max(1, len(errors or ()) or int(metrics.get("completed", 1)))
    lengths = {"input_len": "random_input_len", "output_len": "random_output_len"}
    info = found.get("server_info") or {}
    return ForeignRun(
        place=place,
        tool=BENCH_SERVING,
        model_path=str(info.get("model_path") or found.get("model") or "unknown"),
        dataset=str(found.get("dataset_name") or "unknown"),
        concurrency=None if open_loop else int(slots or everything),
        request_rate=float(str(rate)) if open_loop else None,
        metrics=metrics,
        axes=axes,
        asked={ours: int(found[theirs]) for ours, theirs in lengths.items() if found.get(theirs)},
    )


def _server(found: Json) -> dict[str, Value]:
    """What tells one server from another: scalars of its own account, and the run's tag.

    A line that we wrote ourselves says it outright.
    """
    ours = found.get("sglang_sweep")
    if isinstance(ours, dict) and isinstance(ours.get("axes"), dict):
        return dict(ours["axes"])
    info = found.get("server_info")
    scalars: dict[str, Value] = {
        name: value
        for name, value in (info if isinstance(info, dict) else {}).items()
        if isinstance(value, str | int | float | bool | None) and name not in _OF_THE_LAUNCH
    }
    return {**scalars, "tag": found.get("tag")}


def _varying(servers: list[dict[str, Value]]) -> tuple[str, ...]:
    names = dict.fromkeys(name for server in servers for name in server)
    return tuple(name for name in names if len({repr(s.get(name)) for s in servers}) > 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
