"""`export`, `import`, `recount`: results for and from other tools, and from the raw requests."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from flows.commands.report import store
from tasks.domain.errors import ExitStatus, InputError
from tasks.results.exchange.published import publish
from tasks.results.exchange.read import import_runs, read_paths
from tasks.results.exchange.write import Format, export
from tasks.results.folders import SweepFolder
from tasks.results.records import Damaged, SweepState
from tasks.results.recount import disagreements
from tasks.results.store import load_sweep


def export_sweep(sweep_id: str, to: Format, target: Path, out: Console, *, details: bool) -> None:
    """Write a sweep for another tool and say where."""
    stored = load_sweep(store(), sweep_id)
    folder = SweepFolder(store(), stored.record.sweep_id)
    try:
        count, where = export(stored, folder, to, target, details=details)
    except Damaged as error:
        raise InputError(
            stored.record.sweep_id, [f"its requests can't be read: {error}"]
        ) from error
    _warn(stored.warnings, out)
    out.print(Text(f"{_count(count, 'run')} of {stored.record.sweep_id} written to {where}"))


def publish_sweep(sweep_id: str, target: str, out: Console) -> None:
    """Write a sweep's tables to a folder or to object storage, and say where."""
    stored = load_sweep(store(), sweep_id)
    if stored.record.state is SweepState.RUNNING:
        raise InputError(stored.record.sweep_id, ["still runs: publish it when it is over"])
    count, warnings = publish(SweepFolder(store(), stored.record.sweep_id), target)
    _warn((*stored.warnings, *warnings), out)
    where = f"{target.rstrip('/')}/{stored.record.sweep_id}"
    out.print(Text(f"{_count(count, 'table')} written to {where}"))


def import_paths(
    paths: Sequence[Path], name: str | None, workload: str | None, out: Console
) -> None:
    """Take other tools' results into the store and say how to look at them."""
    if not paths:
        raise InputError(
            "import", ["name a file of bench_serving or vLLM, or a folder of its sweep"]
        )
    runs = read_paths(paths)
    named = name or f"imported-{paths[0].stem}"
    folder = import_runs(store(), runs, named, now=time.time(), workload=workload)
    stored = load_sweep(store(), folder.sweep_id)
    as_trials = f"{_count(len(runs), 'run')} as {_count(len(stored.trials), 'trial')}"
    out.print(Text(f"{as_trials}: {folder.sweep_id}"))
    for result in stored.trials:
        cells = dict.fromkeys(f"{level.workload}/{level.level}" for level in result.levels)
        out.print(Text(f"  {result.trial.trial_id}  {result.trial.label}: {', '.join(cells)}"))
    out.print("Not measured here: every run is suspect, and never among the nights of a sweep.")
    out.print(Text(f"sglang-sweep compare {folder.sweep_id} SWEEP --force"))


def recount_sweep(sweep_id: str, out: Console) -> int:
    """Work every metric out of the raw requests again, and name what differs."""
    stored = load_sweep(store(), sweep_id)
    told = disagreements(stored, SweepFolder(store(), stored.record.sweep_id))
    _warn((*stored.warnings, *told.warnings), out)
    for line in told.differences:
        out.print(Text(line))
    if told.new:
        out.print(Text(f"not known when it was measured: {', '.join(told.new)}"))
    again = f"{_count(told.runs, 'run')} counted again from {_count(told.requests, 'request')}"
    differ = _count(len(told.differences), "figure") if told.differences else "no figure"
    out.print(f"{again}; {differ} differ{'s' * (len(told.differences) < 2)}")
    return ExitStatus.NOTHING_FEASIBLE if told.differences else ExitStatus.OK


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"


def _warn(warnings: Sequence[str], out: Console) -> None:
    for warning in warnings:
        out.print(Text(f"! {warning}", style="yellow"))
