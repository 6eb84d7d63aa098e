"""`report`, `compare`, `history`: what the store says."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from settings.application import load
from settings.nearest import suggest
from tasks.domain.errors import ExitStatus, InputError
from tasks.results.comparison import (
    CellVerdict,
    Comparison,
    UsualNoise,
    compare_sweeps,
    compare_trials,
    compare_with_baseline,
    headline_metrics,
)
from tasks.results.comparison_json import comparison_json
from tasks.results.folders import SweepFolder
from tasks.results.history import History, history
from tasks.results.history_json import history_json
from tasks.results.nights import past_nights, read_board
from tasks.results.records import StoredSweep
from tasks.results.regression import Standing, standing, usual_noise
from tasks.results.report_json import report_json
from tasks.results.store import find_trial, list_sweeps, load_sweep, only_trial
from tasks.results.terminal import print_comparison, print_history, print_report
from tasks.results.view import view

BASELINE = "baseline"


def store() -> Path:
    """The store that the settings name."""
    settings, _ = load()
    return Path(settings.store)


def stored_json(sweep_id: str) -> Mapping[str, object]:
    """A sweep's report for machines."""
    return report_json(load_sweep(store(), sweep_id))


def stored_markdown(sweep_id: str) -> str:
    """A sweep's report for a pull request."""
    from tasks.results.markdown import report_markdown

    page = view(load_sweep(store(), sweep_id))
    record = page.stored.record
    return report_markdown(page, standing(store(), record.sweep_id, record.sweep))


def print_stored(sweep_id: str, out: Console, *, write: bool = True) -> None:
    """Print a sweep's report; `write` makes its HTML page anew."""
    page = view(load_sweep(store(), sweep_id))
    record = page.stored.record
    folder = SweepFolder(store(), record.sweep_id)
    if write:
        from tasks.results.page import write_page

        write_page(page, folder, standing(store(), record.sweep_id, record.sweep))
    print_report(out, page, folder.report.resolve() if folder.report.exists() else None)


def print_compared(a: str, b: str, out: Console, *, force: bool) -> int:
    """Print a comparison; the exit status tells whether something got slower."""
    found = _compared(a, b, force=force)
    print_comparison(out, found)
    return _compared_status(found, b)


def compared_json(a: str, b: str, *, force: bool) -> tuple[Mapping[str, object], int]:
    """A comparison for machines, and the exit status."""
    found = _compared(a, b, force=force)
    return comparison_json(found), _compared_status(found, b)


def _compared_status(found: Comparison, b: str) -> int:
    slower = any(c.verdict is CellVerdict.SLOWER for pair in found.pairs for c in pair.cells)
    return ExitStatus.NOTHING_FEASIBLE if slower and b != BASELINE else ExitStatus.OK


def _compared(a: str, b: str, *, force: bool) -> Comparison:
    """Compare two sweeps, two trials (`SWEEP/TRIAL`), or either with the sweep's baseline."""
    mine, of_mine = _named(a)
    usual = _usual_noise(mine)
    if b == BASELINE:
        return compare_with_baseline(mine, usual=usual, only=of_mine)
    reference, of_reference = _named(b)
    if (of_mine is None) != (of_reference is None):
        raise InputError("compare", [f"{a} and {b}: name two sweeps, or a trial of each"])
    if of_mine is None or of_reference is None:
        return compare_sweeps(mine, reference, force=force, usual=usual)
    sides = only_trial(mine, of_mine), only_trial(reference, of_reference)
    return compare_trials(*sides, force=force, usual=usual)


def _named(name: str) -> tuple[StoredSweep, str | None]:
    """A sweep, and the id of the trial where `SWEEP/TRIAL` names one."""
    sweep, _, trial = name.partition("/")
    stored = load_sweep(store(), sweep)
    return stored, find_trial(stored, trial).trial.trial_id if trial else None


def _usual_noise(stored: StoredSweep) -> UsualNoise:
    """What the nights before know of the noise, for runs that weren't repeated."""
    asked, sweep_id = stored.sweep, stored.record.sweep_id
    nights, _ = past_nights(store(), asked.name, asked.host, sweep_id)
    return usual_noise(read_board(store(), nights, headline_metrics(asked)))


def print_nights(name: str | None, last: int, out: Console) -> None:
    """Print the history of a sweep, or of all."""
    past, among = _nights(name, last)
    print_history(out, past, among)


def nights_json(name: str | None, last: int) -> Mapping[str, object]:
    """The history for machines."""
    return history_json(*_nights(name, last))


def _nights(name: str | None, last: int) -> tuple[History, tuple[Standing, ...]]:
    """The history, and the standing of the newest sweep of each name on each host."""
    if last < 1:
        raise InputError("history", [f"--last: {last} is not at least 1"])
    past = history(store(), name, last)
    if not past.nights and not past.warnings:
        raise InputError(str(store()), [_no_night(name)])
    newest = {(n.record.sweep.name, n.record.sweep.host): n.record for n in past.nights}
    records = newest.values()
    return past, tuple(standing(store(), record.sweep_id, record.sweep) for record in records)


def _no_night(name: str | None) -> str:
    names = sorted({record.sweep.name for record in list_sweeps(store()).sweeps})
    if name is None or not names:
        return "no sweep in this store yet; `sglang-sweep run` makes one"
    hint = suggest(name, names) or f"; there are {', '.join(names)}"
    return f"no sweep is named {name!r}{hint}"
