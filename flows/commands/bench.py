"""`sglang-sweep bench`: load a server that already runs."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson
from pydantic import ValidationError
from rich.console import Console

from flows.commands.live import shown
from settings.application import load
from settings.faults import describe
from settings.workload import Workload
from tasks.domain.errors import ExitStatus, InputError
from tasks.domain.measurement import LevelResult
from tasks.domain.progress import Progress, report
from tasks.load.bench_serving import Foreign, run_foreign
from tasks.load.run import LoadProgress, bench
from tasks.load.target import Level, Target, levels_of

_SHOWN = (
    "output_throughput",
    "request_throughput",
    "request_goodput",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_itl_ms",
    "p99_itl_ms",
    "mean_e2e_latency_ms",
    "concurrency",
    "accept_length",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for; `workload` as it would stand in a sweep file."""

    url: str
    backend: Literal["sglang", "openai", "openai-chat"]
    model: str
    workload: Mapping[str, object]
    seed: int
    processes: int | None
    out_file: Path | None
    as_json: bool
    foreign: Foreign | None = None


async def run_bench(asked: Asked, out: Console, err: Console, stop: asyncio.Event) -> int:
    """Run every level and print each result; `stop` ends the load and keeps what was measured."""
    settings, _ = load()
    key = settings.api_key.get_secret_value() if settings.api_key else None
    target = Target(asked.url, asked.backend, asked.model, api_key=key)
    workload = _workload(asked.workload)
    results: list[LevelResult] = []
    with shown(err):
        async for result in _results(asked, target, workload, stop):
            results.append(result)
            _print_json(result) if asked.as_json else _print(result, out)
    if asked.out_file is not None:
        from tasks.results.saving import save_levels

        save_levels(asked.out_file, results)
    if stop.is_set():
        return ExitStatus.INTERRUPTED
    failed = sum(result.metrics.get("failed", 0) for result in results)
    return ExitStatus.NOTHING_FEASIBLE if failed else ExitStatus.OK


async def _results(
    asked: Asked, target: Target, workload: Workload, stop: asyncio.Event
) -> AsyncIterator[LevelResult]:
    """Each level's result as soon as it is there, by our own client or by SGLang's."""
    if asked.foreign is None:
        async for result in bench(
            target,
            workload,
            seed=asked.seed,
            on_progress=_tell,
            processes=asked.processes,
            stop=stop,
        ):
            yield result
        return
    for level in levels_of(workload):
        if not stop.is_set():
            yield await run_foreign(asked.foreign, target, workload, level, seed=asked.seed)


def read_slo(bounds: Sequence[str]) -> dict[str, str]:
    """Read bounds such as `ttft=200`; their values are for the workload to judge."""
    parts = [bound.partition("=") for bound in bounds]
    if any(not sign for _, sign, _ in parts):
        raise InputError("--slo", [f"{' '.join(bounds)!r}: say ttft=200 tpot=50 e2e=5000, in ms"])
    return {f"{name}_ms": value for name, _, value in parts}


def read_extra(text: str) -> dict[str, object]:
    """Read further fields of the requests."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError("--extra", [f"{text!r} is not JSON: {error}"]) from error
    if not isinstance(found, dict):
        raise InputError("--extra", [f"{text!r} is not a JSON object"])
    return found


def _workload(fields: Mapping[str, object]) -> Workload:
    try:
        return Workload.model_validate(fields)
    except ValidationError as error:
        lines = [line.removeprefix(".") for _, line in describe(error, Workload)]
        raise InputError("bench", lines) from error


def _tell(level: Level, progress: LoadProgress) -> None:
    report(
        Progress(
            f"load {level}",
            detail=f"{progress.requests_done}/{progress.requests} requests",
            fraction=progress.requests_done / max(1, progress.requests),
            tokens_per_s=progress.tokens_per_s,
        )
    )


def _print_json(result: LevelResult) -> None:
    """Metrics flat under their bench_serving names, with the verdict and the client's own facts."""
    content = {
        "level": result.level,
        **result.metrics,
        "verdict": str(result.verdict.validity),
        "reasons": list(result.verdict.reasons),
        "client": result.client,
    }
    sys.stdout.write(orjson.dumps(content).decode() + "\n")
    sys.stdout.flush()


def _print(result: LevelResult, out: Console) -> None:
    verdict = result.verdict
    colour = {"valid": "green", "suspect": "yellow", "invalid": "red"}[str(verdict.validity)]
    reasons = f": {'; '.join(verdict.reasons)}" if verdict.reasons else ""
    out.print(f"[bold]{result.level}[/]  [{colour}]{verdict.validity}[/]{reasons}")
    for name in _SHOWN:
        if name in result.metrics:
            out.print(f"  {name:<22} {result.metrics[name]:>12,.2f}")
