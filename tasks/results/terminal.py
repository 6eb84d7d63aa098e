"""The report, a comparison and the history in a terminal, within 100 columns."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.domain.configuration import TrialVerdict
from tasks.results.command_line import deploy_command
from tasks.results.comparison import CellComparison, CellVerdict, Comparison, TrialComparison
from tasks.results.history import History, Night
from tasks.results.records import SweepState
from tasks.results.regression import Level, Standing, regression_text
from tasks.results.statistics import Interval, Ratio
from tasks.results.view import FailureGroup, FailureRow, TrialRow, View, failure_groups
from tasks.results.wording import (
    ABSENT,
    estimate_text,
    gain_text,
    interval_text,
    metric_title,
    number,
    remedies_text,
    time_text,
    unlike_text,
)

_COLOURS = {
    TrialVerdict.MEASURED: "green",
    TrialVerdict.SUSPECT: "yellow",
    TrialVerdict.INVALID: "red",
    TrialVerdict.INCORRECT: "red",
    TrialVerdict.PRUNED: "magenta",
    TrialVerdict.FAILED: "red",
    TrialVerdict.STOPPED: "bold red",
    TrialVerdict.PENDING: "dim",
}
_STATE_COLOURS = {
    SweepState.COMPLETED: "green",
    SweepState.RUNNING: "cyan",
    SweepState.COMPLETED_WITH_FAILURES: "yellow",
}
_CELL_COLOURS = {
    CellVerdict.FASTER: "green",
    CellVerdict.SLOWER: "red",
    CellVerdict.SAME: "",
    CellVerdict.INCONCLUSIVE: "yellow",
}
_SHOWN_METRICS = 3
"""Beside the objective; more don't fit on 100 columns."""
_HEADER_WIDTH = 12
_MOST_NOTES = 20
_MOST_TIED = 6
_SHOWN_AXES = 5


def print_report(console: Console, page: View, html: Path | None = None) -> None:
    """Print the whole report: what was run, the table, the failures, the decision last."""
    console.print(headline(page))
    if page.rows:
        console.print(trial_table(page))
    if page.failures:
        console.print(failure_table(page.failures))
    for note in notes(page):
        console.print(note)
    if page.effects.main:
        console.print(effect_table(page))
    if page.hours is not None:
        console.print(Text(str(page.hours)))
    if page.tunnelled:
        console.print(Text(page.tunnelled, style="yellow"))
    for warning in (*page.stored.warnings, *page.stability):
        console.print(Text(f"! {warning}", style="yellow"))
    console.print()
    print_decision(console, page)
    if html is not None:
        console.print(Text(f"report   {html}"), soft_wrap=True)


def effect_table(page: View) -> Table:
    """Lay out what each axis does to the objective, and what two do together otherwise."""
    table = _table(f"what each axis does to {metric_title(page.selection.metric)}, all else equal")
    table.add_column("change", overflow="fold", min_width=20)
    for name in ("effect", "95 % interval", "worst … best pair"):
        table.add_column(name, justify="right", no_wrap=True)
    for effect in page.effects.main:
        reach = interval_text(Ratio(1, 0, 0, Interval(effect.worst, effect.best)))
        told = gain_text(effect.gain), interval_text(effect.gain) or ABSENT, reach
        table.add_row(*map(Text, (str(effect.setting), *told)))
    for one in page.effects.interactions:
        if one.certain:
            told = gain_text(one.gain), interval_text(one.gain), ABSENT
            table.add_row(*map(Text, (f"{one.first}, beside {one.second}", *told)), style="dim")
    return table


def headline(page: View) -> Text:
    """Tell which sweep this is, where it ran, how long, and how it ended."""
    record = page.stored.record
    colour = _STATE_COLOURS.get(record.state, "red")
    text = Text.assemble(
        (record.sweep_id, "bold"),
        f"  on {record.sweep.host}  ",
        (record.state.replace("_", " "), colour),
        f"  {page.lasted}" if page.lasted else "",
    )
    if record.reason:
        text.append(f"\n{record.reason}")
    if page.counts and page.counts not in record.reason:
        text.append(f"\n{page.counts}", "dim")
    return text


def trial_table(page: View) -> Table:
    """Lay out the trials, best first; the objective's cell stands in the title."""
    table = _table(f"trials, measured at {page.selection.cell}")
    table.add_column("", width=1)
    axes = page.axes if len(page.axes) <= _SHOWN_AXES else ()
    for name in axes:
        table.add_column(_stacked(name), overflow="fold", max_width=24)
    if not axes:
        table.add_column("trial", overflow="fold", min_width=12)
    table.add_column("verdict", no_wrap=True)
    for metric in page.metrics[: 1 + _SHOWN_METRICS]:
        table.add_column(metric_title(metric).replace(" ", "\n", 1), justify="right", no_wrap=True)
    table.add_column("against\nbaseline", justify="right", no_wrap=True)
    for row in page.rows:
        table.add_row(*_cells(row, bool(axes)), style="bold" if row.best else "")
    return table


def notes(page: View) -> Iterator[Text]:
    """Say of each trial why it may not be chosen, and under which remedies it was measured.

    Those whose failed launches are shown anyway are left out, and of the others all beyond a
    screenful: the HTML report names them.
    """
    shown = {failure.label for failure in page.failures}
    told = [
        row
        for row in page.rows
        if row.note and (row.result.levels or row.result.trial.label not in shown)
    ]
    for row in told[:_MOST_NOTES]:
        colour = _COLOURS[row.result.verdict]
        yield Text.assemble((row.result.trial.label, colour), f"  {row.note}")
    if page.shared_remedies:
        yield Text(f"all measured with {page.shared_remedies}")
    if len(told) > _MOST_NOTES:
        yield Text(f"and {len(told) - _MOST_NOTES} more", style="dim")


def failure_table(failures: Sequence[FailureRow]) -> Table:
    """Say what failed, how often, and what cured it: launches that failed alike share a row."""
    table = _table("failed launches")
    table.add_column("", justify="right", no_wrap=True)
    for name in ("cause", "cure"):
        table.add_column(name, overflow="fold", ratio=1)
    for group in failure_groups(failures):
        table.add_row(f"{group.launches} ×", *_failure_cells(group))
    return table


def _failure_cells(group: FailureGroup) -> tuple[Text, Text]:
    first = group.first
    others = f" and {len(group.trials) - 1} more" if len(group.trials) > 1 else ""
    cause = Text.assemble(
        (first.mode, "bold"), f": {first.explanation}\n", (first.label + others, "dim")
    )
    colour = "green" if group.cured else "yellow"
    return cause, Text.assemble((group.outcome, colour), f"\n{first.cure}" if first.cure else "")


def print_decision(console: Console, page: View) -> None:
    """Print the best configuration and its command line, unwrapped so that it can be copied."""
    best = page.selection.best
    if best is None:
        console.print(Text("no configuration is measured, correct and feasible", style="bold red"))
        return
    title = metric_title(page.selection.metric)
    console.print(
        Text.assemble(
            ("best     ", "bold green"),
            (best.result.trial.label, "bold"),
            f"  {estimate_text(best.objective)} {title} at {page.selection.cell}",
        )
    )
    for line in _qualifications(page):
        console.print(Text(f"         {line}"))
    command = deploy_command(best.result)
    if command is not None:
        console.print(Text(command), soft_wrap=True)


def comparison_table(pair: TrialComparison) -> Table:
    """Lay out how one trial stands against its reference: a row a cell and metric."""
    table = _table(pair.label)
    for name in ("cell", "metric"):
        table.add_column(name, no_wrap=True)
    for name in ("value", "reference", "ratio", "interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for cell in pair.cells:
        table.add_row(*_comparison_cells(cell))
    return table


def _comparison_cells(cell: CellComparison) -> Iterator[Text]:
    means = [ABSENT if side is None else number(side.mean) for side in (cell.mine, cell.reference)]
    ratio = ABSENT if cell.ratio is None else f"{cell.ratio.value:.3f}"
    words = (str(cell.cell), metric_title(cell.metric), *means, ratio, interval_text(cell.ratio))
    yield from map(Text, words)
    yield Text(cell.verdict, style=_CELL_COLOURS[cell.verdict])


def print_comparison(console: Console, found: Comparison) -> None:
    """Print a comparison with what was left out and what else changed."""
    console.print(Text(f"{found.of} against {found.against}", style="bold"))
    for pair in found.pairs:
        console.print(comparison_table(pair))
    reasons = {cell.note for pair in found.pairs for cell in pair.cells if cell.note}
    for note in sorted(reasons):
        console.print(Text(f"inconclusive: {note}", style="yellow"))
    borrowed = sorted({c.noise.spread for pair in found.pairs for c in pair.cells if c.noise})
    if borrowed:
        least, most = (f"{100 * spread:.1f}" for spread in (borrowed[0], borrowed[-1]))
        range_text = f"{least} %" if least == most else f"{least} to {most} %"
        text = f"single runs are judged by the noise of the other runs or nights: {range_text}"
        console.print(Text(text, style="dim"))
    for name in found.unmatched:
        console.print(Text(f"left out: {name}", style="dim"))
    for change in found.changes:
        console.print(Text(f"changed: {change}"))
    for line in found.stability:
        console.print(Text(f"! {line}", style="yellow"))


def history_table(past: History) -> Table:
    """Lay out the nights, the newest last; several sweep names get a column."""
    names = sorted({night.record.sweep.name for night in past.nights})
    table = _table("history" + (f" of {names[0]}" if len(names) == 1 else ""))
    table.add_column("night, UTC", no_wrap=True)
    if len(names) > 1:
        table.add_column("sweep", overflow="fold")
    table.add_column("state")
    table.add_column("best", overflow="fold", min_width=26)
    for name in ("objective", "over\nbaseline", "since\nlast", "baseline\nsince last"):
        table.add_column(name, justify="right", no_wrap=True)
    for night in past.nights:
        table.add_row(*_history_cells(night, with_name=len(names) > 1))
    return table


def _history_cells(night: Night, *, with_name: bool) -> Iterator[Text]:
    record = night.record
    yield Text(time_text(record.started_at).removesuffix(" UTC"))
    if with_name:
        yield Text(record.sweep.name)
    yield Text(record.state.replace("_", " "), _STATE_COLOURS.get(record.state, "red"))
    yield Text(night.best_label.replace(" ", "\n") or ABSENT)
    yield Text(estimate_text(night.best))
    yield from (Text(gain_text(c)) for c in (night.gain, night.change, night.baseline_change))


def print_history(console: Console, past: History, standings: Sequence[Standing] = ()) -> None:
    """Print the history, the levels that shifted, and what could not be read."""
    console.print(history_table(past))
    for among in standings:
        print_standing(console, among)
    for warning in past.warnings:
        console.print(Text(f"! {warning}", style="yellow"))


def print_standing(console: Console, among: Standing) -> None:
    """Print what shifted over the nights, and where the newest night was expected to be."""
    for shift in among.shifts:
        colour = "green" if shift.better else "red" if shift.alarm else "yellow"
        console.print(Text(regression_text(shift), style=colour))
    shown = [level for level in among.levels if level.deployable]
    if shown:
        console.print(level_table(shown))
    if shown and not any(level.band for level in shown):
        most = max(level.nights for level in shown)
        console.print(Text(f"the noise is not known yet: {most} earlier nights", style="dim"))


def level_table(levels: Sequence[Level]) -> Table:
    """Lay out what tonight was expected to be, from the noise of the nights before."""
    table = _table("the baseline and what was best, against the nights before")
    table.add_column("configuration", overflow="fold", min_width=20)
    for name in ("cell", "metric"):
        table.add_column(name, no_wrap=True)
    for name in ("tonight", "expected", "nights"):
        table.add_column(name, justify="right", no_wrap=True)
    for level in levels:
        band = level.band
        expected = ABSENT if band is None else f"{number(band.low)} … {number(band.high)}"
        title = metric_title(level.metric)
        words = (level.label, str(level.cell), title, number(level.tonight), expected)
        table.add_row(*map(Text, (*words, str(level.nights))), style="red" if level.far else "")
    return table


def _cells(row: TrialRow, with_axes: bool) -> Iterator[Text]:
    trial = row.result.trial
    yield Text("★" if row.best else "≈" if row.tied else "·" if trial.baseline else "")
    yield from (Text(value) for value in (row.axes if with_axes else (trial.label,)))
    yield Text(row.result.verdict, style=_COLOURS[row.result.verdict])
    yield from (Text(value) for value in row.metrics[: 1 + _SHOWN_METRICS])
    yield Text("baseline" if trial.baseline else gain_text(row.gain))


def _qualifications(page: View) -> Iterator[str]:
    """Say what must be known before the best is deployed."""
    best = page.selection.best
    if best is None:
        return
    if best.gain is not None:
        interval = interval_text(best.gain) or "one run on a side, no interval"
        yield f"{gain_text(best.gain)} against the baseline ({interval})"
    elif best.result.trial.baseline:
        yield "the baseline itself: nothing measured beats it"
    if best.result.remedies:
        word = "altered by" if best.result.altered else "needs"
        yield f"{word} {remedies_text(best.result)}"
    if page.selection.certainty is not None and len(page.selection.ranked) > 1:
        yield f"the best of them with a probability of {page.selection.certainty:.0%}"
    if page.selection.tied:
        reference = best.result.trial.axes
        tied = [each.result.trial for each in page.selection.tied[:_MOST_TIED]]
        labels = "; ".join(unlike_text(trial.axes, reference) or trial.label for trial in tied)
        left = len(page.selection.tied) - len(tied)
        more = f" and {left} more" if left else ""
        yield f"not told apart from it (≈) with {labels}{more}"


def _table(title: str) -> Table:
    return Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD)


def _stacked(name: str) -> str:
    """Break a long axis name where a reader would: after a dot or an underscore."""
    lines = [""]
    for part in re.split(r"(?<=[._])", name):
        if len(lines[-1]) + len(part) > _HEADER_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(line for line in lines if line)
