"""Our client and `sglang.bench_serving` in turn, on the same server: do they agree?

    python -m benchmarks.against_sglang URL --python ~/ml-env/bin/python3 [--rounds 5]
        [--requests 32] [--concurrency 4] [--input-len 64] [--output-len 32]

`--python` is an interpreter that has SGLang. Counts must be the same; a time is shown with the
spread of its rounds, by each client, and the difference of the means with its standard error. The
clients take turns, and the one that begins changes, so that whatever else the machine does meets
both.
"""

import argparse
import asyncio
import math
import statistics
from collections import defaultdict

from settings.workload import Workload
from tasks.domain.measurement import LevelResult
from tasks.load.bench_serving import Foreign, run_foreign
from tasks.load.run import run_level
from tasks.load.target import Backend, Level, Target

COUNTS = ("completed", "total_input_tokens", "total_output_tokens")
TIMES = tuple(
    f"{statistic}_{name}_ms"
    for name in ("ttft", "tpot", "itl", "e2e_latency")
    for statistic in ("mean", "median")
)
RATES = ("output_throughput",)


async def compare(target: Target, workload: Workload, python: str, rounds: int) -> bool:
    """Run both so many times and print what each said; whether every count agrees."""
    level = Level(concurrency=workload.concurrency[0])
    results: dict[str, list[LevelResult]] = defaultdict(list)

    async def ours(number: int) -> LevelResult:
        return await run_level(target, workload, level, seed=number, repeat=number)

    async def theirs(number: int) -> LevelResult:
        return await run_foreign(Foreign(python), target, workload, level, seed=1000 + number)

    for number in range(rounds):
        turns = [("ours", ours), ("sglang", theirs)]
        for name, run in turns if number % 2 else turns[::-1]:
            results[name].append(await run(number))
            metrics = results[name][-1].metrics
            print(
                f"  {number + 1}/{rounds} {name}: {metrics['completed']:.0f} completed", flush=True
            )
    for name in COUNTS:
        print(f"{name:<26} {figures(results, name)}")
    for name in (*TIMES, *RATES):
        print(f"{name:<26} {spread(results, name)}")
    return all(len(set(values(results, name))) == 1 for name in COUNTS)


def values(results: dict[str, list[LevelResult]], name: str) -> list[float]:
    """A metric in every run of both."""
    return [result.metrics[name] for runs in results.values() for result in runs]


def figures(results: dict[str, list[LevelResult]], name: str) -> str:
    """The counts of each client, which are one number if all is well."""
    parts = []
    for client, runs in sorted(results.items()):
        seen = sorted({round(result.metrics[name]) for result in runs})
        parts.append(f"{client} {', '.join(map(str, seen))}")
    return "   ".join(parts)


def spread(results: dict[str, list[LevelResult]], name: str) -> str:
    """Mean, least and most of each client, and how many standard errors lie between the means."""
    parts, means, errors = [], [], []
    for client, runs in sorted(results.items()):
        found = [result.metrics[name] for result in runs]
        mean = statistics.fmean(found)
        means.append(mean)
        errors.append(statistics.variance(found) / len(found) if len(found) > 1 else math.nan)
        parts.append(f"{client} {mean:8.2f} ({min(found):.2f} to {max(found):.2f})")
    difference, error = means[0] - means[1], math.sqrt(sum(errors))
    apart = f"{difference / error:+.1f} standard errors apart" if error else ""
    return f"{'   '.join(parts)}   {difference / means[1]:+.1%}, {apart}"


def main() -> None:
    """Read the command line and compare; exit status 1 where a count differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--backend", default="sglang", choices=("sglang", "openai", "openai-chat"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=32)
    asked = parser.parse_args()
    backend: Backend = asked.backend
    workload = Workload(
        name="compare",
        requests=asked.requests,
        concurrency=(asked.concurrency,),
        input_len=asked.input_len,
        output_len=asked.output_len,
    )
    target = Target(asked.url, backend)
    agrees = asyncio.run(compare(target, workload, asked.python, asked.rounds))
    raise SystemExit(0 if agrees else 1)


if __name__ == "__main__":
    main()
