"""Drive a level with SGLang's own client, so that anyone can check ours against it.

`python -m sglang.bench_serving` of the target's own environment sends the load; its JSONL gives
the metrics, which bear the same names, and with `--output-details` the requests. It knows no send
times: a record's times count from its own send, which is 0. It drops errors, so what is missing
has failed.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from settings.workload import Arrivals, Workload
from tasks.domain.errors import InputError, SweepError
from tasks.domain.measurement import (
    LevelResult,
    RequestOutcome,
    RequestRecord,
    RunVerdict,
    Validity,
)
from tasks.domain.sglang import BENCH_SERVING, BENCH_SERVING_BACKENDS
from tasks.load.server import server_info
from tasks.load.target import Level, Target
from tasks.load.tokens import spread

_ITS_OWN_DELAY = "sglang.bench_serving doesn't tell how late it was itself"


class ForeignClientFailed(SweepError):
    """SGLang's client ended without a result."""

    def __init__(self, python: str, code: int, said: str) -> None:
        super().__init__(f"{python} -m {BENCH_SERVING} ended with {code}: {said}")


@dataclass(frozen=True, slots=True)
class Foreign:
    """How to start SGLang's client: the interpreter of an environment that has it."""

    python: str = "python3"

    def command(
        self, target: Target, model: str, workload: Workload, level: Level, seed: int, out: Path
    ) -> list[str]:
        """Spell a level out in its flags; prompts are sent as ids where the interface takes ids."""
        flags: dict[str, object] = {
            "backend": BENCH_SERVING_BACKENDS[target.backend],
            "base-url": target.base_url,
            "model": model,
            "dataset-name": "random-ids",
            "random-input-len": workload.input_len,
            "random-output-len": workload.output_len,
            "random-range-ratio": 1.0,
            "num-prompts": workload.requests,
            "warmup-requests": workload.warmup_requests,
            "seed": seed,
            "output-file": out,
        }
        if level.concurrency is not None:
            flags["max-concurrency"] = level.concurrency
        else:
            flags["request-rate"] = level.request_rate
        if workload.extra:
            flags["extra-request-body"] = orjson.dumps(workload.extra).decode()
        words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
        switches = ["--output-details", "--disable-tqdm", "--flush-cache"]
        if target.backend == "sglang":
            switches.append("--tokenize-prompt")
        return [self.python, "-m", BENCH_SERVING, *words, *switches]


def check_foreign(workload: Workload) -> None:
    """Raise `InputError` where SGLang's client can't do what a workload asks for."""
    if workload.dataset != "random":
        fault = f"dataset {workload.dataset}: the engine sglang draws random tokens alone"
        raise InputError("bench", [f"{fault}; leave --engine out"])
    if workload.arrivals != Arrivals():
        fault = f"arrivals {workload.arrivals.kind}: the engine sglang has Poisson arrivals alone"
        raise InputError("bench", [f"{fault}; leave --engine out"])


async def run_foreign(
    foreign: Foreign, target: Target, workload: Workload, level: Level, seed: int
) -> LevelResult:
    """Run one level to its end. Raises `ForeignClientFailed` and `InputError`."""
    check_foreign(workload)
    info = await server_info(target)
    model = str(info.get("tokenizer_path") or info.get("model_path") or target.model)
    with tempfile.TemporaryDirectory(prefix="sglang-sweep-foreign-") as name:
        out = Path(name) / "result.jsonl"
        command = foreign.command(target, model, workload, level, seed, out)
        await _run(command)
        return read_result(out.read_bytes().splitlines()[-1], workload, level)


async def _run(command: Sequence[str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise InputError("--python", [f"{command[0]}: {error.strerror or error}"]) from error
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    if process.returncode:
        lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1] if lines else "it said nothing"
        raise ForeignClientFailed(command[0], process.returncode, last)


def read_result(line: bytes, workload: Workload, level: Level) -> LevelResult:
    """Turn a line of its JSONL into the result of a level."""
    found = json.loads(line)  # it writes Infinity, which is no JSON
    metrics = {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
        if not name.startswith("random_") and name not in ("request_rate", "max_concurrency")
    }
    metrics["failed"] = workload.requests - metrics["completed"]
    return LevelResult(
        workload=workload.name,
        concurrency=level.concurrency,
        request_rate=level.request_rate,
        repeat=0,
        metrics=metrics,
        verdict=_verdict(metrics, workload.requests),
        records=_records(found, workload.output_len),
        client={"engine": BENCH_SERVING, "timestamps": "clock"},
    )


def _verdict(metrics: Mapping[str, float], asked: int) -> RunVerdict:
    failed = round(metrics["failed"])
    if failed == asked:
        return RunVerdict(Validity.INVALID, (f"no request finished, of {asked} sent",))
    lost = (f"{failed} of {asked} requests failed",) if failed else ()
    return RunVerdict(Validity.SUSPECT, (*lost, _ITS_OWN_DELAY))


def _records(found: Mapping[str, Any], output_len: int) -> tuple[RequestRecord, ...]:
    columns = ("input_lens", "output_lens", "ttfts", "itls", "errors")
    rows = zip(*(found.get(name) or () for name in columns), strict=True)
    return tuple(_record(index, output_len, *row) for index, row in enumerate(rows))


def _record(
    index: int,
    output_len: int,
    prompt_len: int,
    tokens: int,
    ttft_s: float,
    gaps_s: Sequence[float],
    error: str,
) -> RequestRecord:
    """One request; a gap a token, or a gap a chunk, whose tokens are then taken for even."""
    arrivals = tuple(round(at_s * 1e9) for at_s in accumulate([ttft_s, *gaps_s]))
    finished = tokens > 0 and not error
    return RequestRecord(
        index=index,
        intended_ns=0,
        sent_ns=0,
        end_ns=arrivals[-1],
        outcome=RequestOutcome.FINISHED if finished else RequestOutcome.HTTP_ERROR,
        arrival_ns=arrivals if finished else (),
        cumulative_tokens=tuple(spread(tokens, len(arrivals))) if finished else (),
        first_text_ns=arrivals[0] if finished else None,
        prompt_tokens=prompt_len,
        completion_tokens=tokens if finished else None,
        requested_tokens=output_len,
        error=None if finished else (error.strip().splitlines() or ["no answer"])[-1][:300],
    )
