"""`sglang-sweep demo`: a whole sweep on a simulated host, held against the simulator's truth.

The simulator is a program of its own: it is run, never imported.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.commands.interrupt import run_interruptible
from flows.commands.run import run_sweep
from flows.simulated import PROJECT, SCENARIO, demo_sweep, prepare
from settings.application import CONFIG_VARIABLE, load
from settings.quantities import show_duration
from settings.workload import Workload
from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.errors import ExitStatus, InputError
from tasks.results.attempts import measured_attempt
from tasks.results.selection import select
from tasks.results.store import LATEST, load_sweep


def run_demo(folder: Path, out: Console, err: Console, *, fresh: bool) -> int:
    """Make the simulated host, run the sweep on it, print how true the measurement was."""
    folder = folder.resolve()
    config = prepare(folder)
    os.environ[CONFIG_VARIABLE] = str(config)
    if fresh:
        (folder / "sweeps" / "remedies.json").unlink(missing_ok=True)
    sweep = demo_sweep(folder)
    settings, _ = load()
    out.print(
        "A sweep on a simulated host: eight pretend GPUs, real processes, real HTTP. "
        "It will fail here and there on purpose.\n"
    )
    started = time.monotonic()
    status = run_interruptible(run_sweep(sweep, None, settings, out, str(folder / "prefect")))
    if status == ExitStatus.OK:
        _hold_against_truth(folder, out)
    out.print(f"\ntook {show_duration(time.monotonic() - started)}; to look at it again:")
    out.print(f"  export {CONFIG_VARIABLE}={config}", soft_wrap=True)
    out.print(f"  {Path(sys.executable).with_name('sglang-sweep')} report latest", soft_wrap=True)
    return status


def _hold_against_truth(folder: Path, out: Console) -> None:
    """Print each measured throughput beside the figure that the simulator knows to be true."""
    stored = load_sweep(folder / "sweeps", LATEST)
    measured = [r for r in stored.trials if r.verdict is TrialVerdict.MEASURED]
    workloads = {workload.name: workload for workload in stored.sweep.workloads}
    queries = [
        _query(result, workloads[level.workload], level.concurrency or 1)
        for result in measured
        for level in result.levels
    ]
    truths = iter(_truths(queries))
    table = Table("trial", "workload", "measured", "true", "error", title="measured against truth")
    errors: list[float] = []
    best: dict[str, float] = {}
    objective = select(stored.sweep, stored.trials)
    for result in measured:
        for level in result.levels:
            true, seen = next(truths), level.metrics["output_throughput"]
            errors.append(abs(seen / true - 1))
            if level.workload == objective.cell.workload:
                best[result.trial.trial_id] = true
            cells = f"{seen:,.2f}", f"{true:,.2f}", f"{seen / true - 1:+.2%}"
            table.add_row(result.trial.label, f"{level.workload} {level.level}", *cells)
    out.print(table)
    out.print(
        f"error of the measured throughput: {statistics.median(errors):.2%} in the median, "
        f"{max(errors):.2%} at worst"
    )
    truly = max(best, key=lambda trial_id: best[trial_id])
    chosen = objective.best.result.trial.trial_id if objective.best else None
    verdict = "is the simulator's true best" if chosen == truly else f"is NOT: that is {truly}"
    out.print(f"the chosen configuration {verdict}")


def _query(result: TrialResult, workload: Workload, concurrency: int) -> Mapping[str, object]:
    """One question to `simulator.truth`: the command line that was measured, and its load."""
    attempt = measured_attempt(result)
    if attempt is None:
        raise InputError("demo", [f"{result.trial.label} has no measured launch"])
    return {
        "args": list(attempt.command[attempt.command.index("--model-path") :]),
        "env": dict(attempt.env),
        "workload": {
            "input_len": workload.input_len,
            "output_len": workload.output_len,
            "concurrency": concurrency,
            "requests": workload.requests,
        },
    }


def _truths(queries: Sequence[Mapping[str, object]]) -> list[float]:
    """The true output throughput of each query, in order."""
    asked = subprocess.run(
        [sys.executable, "-m", "simulator.truth", "--scenario", str(SCENARIO)],
        input="\n".join(json.dumps(query) for query in queries),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line)["output_throughput"] for line in asked.stdout.splitlines()]
