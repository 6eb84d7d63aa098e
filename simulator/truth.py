"""The true figures of a configuration under a closed-loop workload, computed in virtual time.

    python -m simulator.truth --args '--tp 8 --cuda-graph-max-bs 128' --env NCCL_MIN_NCHANNELS=16 \\
        --workload '{"input_len": 1024, "output_len": 512, "concurrency": 16, "requests": 64}'

The server's own engine runs, so the truth and the server can't differ but by lateness. Without
`--workload` one query a line is read from standard input, `{"args": "…" or […], "env": {…},
"workload": {…}}`, and one JSON object a line is written. The client sends its next request the
moment that one finishes; prompts share nothing.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator import figures, flags, scenario
from simulator.engine import Engine, Request
from simulator.model import memory_of, speed_of

# Faults that let no launch of their configuration come up.
FATAL = frozenset({"abi-undefined-symbol", "cudnn-check", "nccl-hang", "oom-graph-capture"})


@dataclass(frozen=True, slots=True)
class Workload:
    """A closed loop: `concurrency` clients share `requests` requests of fixed lengths (tokens)."""

    input_len: int
    output_len: int
    concurrency: int
    requests: int


def run(engine: Engine, workload: Workload) -> list[figures.Stream]:
    """Drive the engine with a closed loop whose clients take no time between requests."""
    chunks: dict[Request, list[tuple[float, int]]] = {}
    finished: list[figures.Stream] = []
    pending = _requests(workload)

    def send(count: int, at_s: float) -> None:
        for _, request in zip(range(count), pending, strict=False):
            chunks[request] = []
            engine.submit(request, at_s)

    send(workload.concurrency, 0.0)
    now_s = 0.0
    while step := engine.step(now_s):
        now_s = step.end_s
        done = 0
        for request, count in engine.finish(step):
            chunks[request].append((now_s, count))
            if request.done:
                done += 1
                arrivals = tuple(chunks.pop(request))
                finished.append(figures.Stream(request.submitted_s, workload.input_len, arrivals))
        send(done, now_s)
    return finished


def _requests(workload: Workload) -> Iterator[Request]:
    for number in range(workload.requests):
        # A first token of its own is enough for a prompt to share nothing with the others.
        prompt = (-1 - number, *range(workload.input_len - 1))
        yield Request(number, prompt, workload.output_len)


def answer(query: Mapping[str, Any], default: scenario.Scenario) -> dict[str, Any]:
    """Answer one query; an infeasible configuration gives `feasible` false and the reason."""
    asked = query.get("args", [])
    argv = shlex.split(asked) if isinstance(asked, str) else list(asked)
    if not any(arg.startswith("--model") for arg in argv):
        argv = ["--model-path", "pretend-model", *argv]
    environment = {str(k): str(v) for k, v in query.get("env", {}).items()}
    host = scenario.load(query["scenario"]) if query.get("scenario") else default
    configuration = flags.parse(argv, host.sglang_version)
    struck = [f for f in host.faults if scenario.matches(f, configuration, environment)]
    speedup = next((f.number("speedup", 1.0) for f in struck if f.kind in ("garbage", "nan")), 1.0)
    speed = speed_of(configuration, environment, host.parameters, speedup)
    memory = memory_of(configuration, host.parameters)
    fits = memory.max_total_num_tokens > 0 and memory.graphs_fit
    fatal = any(fault.kind in FATAL and fault.attempts is None for fault in struck)
    result: dict[str, Any] = {
        "feasible": fits and not fatal,
        "faults": [fault.kind for fault in struck],
        "accept_length": speed.accept_length,
        "single_stream_tokens_per_s": speed.single_stream_tokens_per_s() / host.time_scale,
        "max_total_num_tokens": memory.max_total_num_tokens,
    }
    if fits:
        engine = Engine(
            speed,
            memory,
            chunk=configuration.chunked_prefill_size,
            time_scale=host.time_scale,
            radix=not configuration.disable_radix_cache,
        )
        result |= figures.summarise(run(engine, Workload(**query["workload"])))
        if engine.counters.spec_steps:
            result["accept_length"] = engine.counters.accept_length
    return result


def safe_answer(query: Mapping[str, Any], default: scenario.Scenario) -> dict[str, Any]:
    """Answer one query of many: flags that the server would refuse are an answer, not an end."""
    try:
        return answer(query, default)
    except SystemExit as refused:
        return {"feasible": False, "faults": [], "error": f"flags refused, exit {refused.code}"}
    except (TypeError, ValueError, KeyError) as error:
        return {"feasible": False, "faults": [], "error": f"{type(error).__name__}: {error}"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulator.truth", description=__doc__)
    parser.add_argument("--args", default="", help="launch flags, as one shell word")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--workload", type=json.loads)
    parser.add_argument("--scenario", type=Path, default=os.environ.get("SIMULATOR_SCENARIO"))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    asked = parser.parse_args(argv)
    host = scenario.load(asked.scenario)
    if asked.workload is None:
        for line in filter(str.strip, sys.stdin):
            print(json.dumps(safe_answer(json.loads(line), host)), flush=True)
        return 0
    environment = dict(pair.split("=", 1) for pair in asked.env)
    query = {"args": asked.args, "env": environment, "workload": asked.workload}
    result = answer(query, host)
    print(json.dumps(result) if asked.json else _lines(result))
    return 0 if result["feasible"] else 1


def _lines(result: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name:28} {value:.3f}" if isinstance(value, float) else f"{name:28} {value}"
        for name, value in result.items()
    )


if __name__ == "__main__":
    sys.exit(main())
