"""vLLM's results: the JSON of `vllm bench serve --save-result`, and folders of `vllm bench sweep`.

A sweep's folder has one folder a combination, `SERVE--max_num_seqs=32-BENCH--max_concurrency=16`,
with `run=0.json`, `run=1.json` … and `summary.json`, the list of them. Into each run's object the
sweep puts `run_number` and the parameters that it varied. Its E2E latency is `e2el`, its total
rate `total_token_throughput`; it has no p90 or p95 unless asked.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tasks.domain.configuration import Value
from tasks.domain.errors import InputError
from tasks.results.exchange.runs import SHARED, ForeignRun, Json, StoredRun

TOOL = "vllm bench"

_RENAMED = {
    **{name: name.replace("e2e_latency", "e2el") for name in SHARED},
    "total_throughput": "total_token_throughput",
    "failed": "failed",
}
"""Our names of the metrics, and vLLM's."""

_OURS_ALONE = frozenset(
    {"input_throughput", "concurrency", "accept_length", "slo_attainment", "request_goodput"}
)
_WRITTEN = {ours: theirs for ours, theirs in _RENAMED.items() if ours not in _OURS_ALONE}

_ARGUMENTS = frozenset(
    {
        *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
        *("request_rate", "burstiness", "max_concurrency", "run_number", "request_goodput"),
        *("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps", "dataset_name", "seed"),
        *("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"),
        *("spec_decode_acceptance_rate", "sglang_sweep", "_benchmark_name"),
    }
)
_RESULT = re.compile(r"^(mean|median|std|p[\d.]+)_\w+_ms$|^spec_decode_|^max_\w+_per_s$|^rtfx$")
_LOAD = re.compile(r"^(random|sonnet|sharegpt|custom|hf|num|dataset|ignore|temperature)_")
"""Parameters of `vllm bench serve`, which load a server and don't configure it."""


def write_run(run: StoredRun) -> Json:
    """Build the object of one run, as a sweep's `run=N.json` has it."""
    level, asked = run.level, run.asked
    metrics = run.metrics(tuple(_WRITTEN))
    started = datetime.fromtimestamp(run.stored.record.started_at, UTC)
    return {
        "date": started.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "sglang",
        "backend": "sglang",
        "label": run.name,
        "model_id": run.result.trial.configuration.model_path,
        "tokenizer_id": run.result.trial.configuration.model_path,
        "num_prompts": asked.requests,
        "request_rate": "inf" if level.request_rate is None else level.request_rate,
        "burstiness": 1.0,
        "max_concurrency": level.concurrency,
        **{_WRITTEN[name]: value for name, value in metrics.items()},
        "request_goodput": level.metrics.get("request_goodput"),
        "run_number": level.repeat,
        "sglang_sweep": run.provenance,
        **run.result.trial.axes,
    }


def combination(run: StoredRun) -> str:
    """Name the folder of a run's combination as vLLM's sweep names it."""
    axes = run.result.trial.axes
    serve = "-".join(f"{name}={value}" for name, value in axes.items())
    level = run.level
    if level.concurrency is not None:
        bench = f"max_concurrency={level.concurrency}"
    else:
        bench = f"request_rate={level.request_rate:g}"
    parts = [*(("SERVE-", serve) if serve else ()), "BENCH-", bench, level.workload]
    return re.sub(r"[^\w.=,+-]", "_", "-".join(parts))


def is_run(found: Mapping[str, object]) -> bool:
    """Whether an object is a result of vLLM's."""
    return "output_throughput" in found and "total_token_throughput" in found


def runs_below(folder: Path) -> list[Path]:
    """Find the files of the runs below a sweep's folder; warm-ups and summaries are none."""
    return sorted(folder.rglob("run=*.json"))


def read_runs(objects: Mapping[str, Json]) -> Iterator[ForeignRun]:
    """Read objects, each with the place where it stands; raises `InputError` for another kind."""
    for place, found in objects.items():
        if not is_run(found):
            raise InputError(place, ["no result of vllm bench: no total_token_throughput in it"])
        yield _read(place, found)


def _read(place: str, found: Json) -> ForeignRun:
    metrics = {
        ours: float(found[theirs])
        for ours, theirs in _RENAMED.items()
        if isinstance(found.get(theirs), int | float)
    }
    rate, slots = found.get("request_rate"), found.get("max_concurrency")
    open_loop = slots is None and isinstance(rate, int | float)
    prompts = int(found.get("num_prompts") or metrics.get("completed") or 1)
    asked = {"requests": prompts}
    for ours, theirs in (("input_len", "random_input_len"), ("output_len", "random_output_len")):
        if isinstance(found.get(theirs), int):
            asked[ours] = found[theirs]
    return ForeignRun(
        place=place,
        tool=TOOL,
        model_path=str(found.get("model_id") or "unknown"),
        dataset=str(found.get("dataset_name") or "random"),
        concurrency=None if open_loop else int(slots or prompts),
        request_rate=float(str(rate)) if open_loop else None,
        metrics=metrics,
        axes=_axes(found),
        asked=asked,
    )


def _axes(found: Json) -> dict[str, Value]:
    """Take what isn't vLLM's own word: the parameters that the sweep gave to its server."""
    named = {"configuration": found["_benchmark_name"]} if "_benchmark_name" in found else {}
    known = {*_ARGUMENTS, *_RENAMED.values(), *_RENAMED}
    return named | {
        name: value
        for name, value in found.items()
        if name not in known and not _RESULT.match(name) and not _LOAD.match(name)
        if isinstance(value, str | int | float | bool | None)
    }
