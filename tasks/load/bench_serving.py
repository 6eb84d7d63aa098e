"""Drive a level with SGLang's own client, so that anyone can check ours against it.

`python -m sglang.bench_serving` of the target's own environment sends the load; its JSONL gives
the metrics, which bear the same names, and with `--output-details` the requests. It knows no send
times: a record's times count from its own send, which is 0. It drops errors, so what is missing
has failed.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from settings.workload import Workload
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

    def __init__(self, client: Foreign, code: int | None, said: str) -> None:
        super().__init__(f"{client.python} -m {client.module} ended with {code}: {said}")


@dataclass(frozen=True, slots=True)
class Foreign:
    """How to start SGLang's client: the interpreter of an environment that has it, and its module.

    `base_url` is where the client finds the server, if that isn't where we do; `model_path` the
    model, if the server needn't be asked.
    """

    python: str = "python3"
    module: str = BENCH_SERVING
    base_url: str | None = None
    model_path: str | None = None

    def command(
        self, target: Target, model: str, workload: Workload, level: Level, seed: int, out: str
    ) -> list[str]:
        """Spell a level out in its flags; prompts are sent as ids where the interface takes ids."""
        flags: dict[str, object] = {
            "backend": BENCH_SERVING_BACKENDS[target.backend],
            "base-url": self.base_url or target.base_url,
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
        return [self.python, "-m", self.module, *words, *switches]


Command = Callable[[str], list[str]]
"""The client's command line, by the path of the file that it shall write."""

Execute = Callable[[Command], Awaitable[bytes]]
"""Runs the client, here or elsewhere, and returns what it wrote."""


async def run_foreign(
    foreign: Foreign,
    target: Target,
    workload: Workload,
    level: Level,
    *,
    seed: int,
    repeat: int = 0,
    execute: Execute | None = None,
) -> LevelResult:
    """Run one level to its end. Raises `ForeignClientFailed` and `InputError`."""
    model = foreign.model_path
    if model is None:
        info = await server_info(target)
        model = str(info.get("tokenizer_path") or info.get("model_path") or target.model)

    def command(out: str) -> list[str]:
        return foreign.command(target, model, workload, level, seed, out)

    written = await (execute or run_here)(command)
    lines = written.splitlines()
    if not lines:
        raise ForeignClientFailed(foreign, 0, "it gave no result; does this SGLang have it?")
    found = read_result(lines[-1], workload, level)
    client = {**found.client, "engine": foreign.module, "seed": seed}
    return replace(found, repeat=repeat, client=client)


async def run_here(command: Command) -> bytes:
    """Run the client on this machine."""
    with tempfile.TemporaryDirectory(prefix="sglang-sweep-foreign-") as name:
        out = Path(name) / "result.jsonl"
        await _run(command(str(out)))
        return out.read_bytes() if out.exists() else b""


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
        raise ForeignClientFailed(client_of(command), process.returncode, last_line(said))


def client_of(command: Sequence[str]) -> Foreign:
    """The client that a command line starts."""
    return Foreign(command[0], command[2])


def last_line(said: bytes) -> str:
    """The last that somebody said."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


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
        client={"timestamps": "clock"},
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
