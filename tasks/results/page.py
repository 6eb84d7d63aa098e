"""The report for people: one HTML file that needs nothing else, on a screen or on paper."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from settings.quantities import show_duration
from tasks.domain.configuration import TrialResult
from tasks.results.cells import Cell, runs
from tasks.results.command_line import deploy_command
from tasks.results.comparison import TrialComparison, compare
from tasks.results.distributions import Distribution, distributions
from tasks.results.files import write_whole
from tasks.results.folders import SweepFolder
from tasks.results.pareto import front_points, points, with_front
from tasks.results.plots.chart import Plot
from tasks.results.plots.effects import effects_plot
from tasks.results.plots.front import front_plots
from tasks.results.plots.percentiles import percentile_plots
from tasks.results.plots.time import hours_plot, nights_plot
from tasks.results.plots.trials import MOST_TRIALS, latency_plots, plots
from tasks.results.provenance import bounds_text, stack_row, workload_row
from tasks.results.regression import Standing, regression_text
from tasks.results.spending import Spending
from tasks.results.view import View, failure_groups
from tasks.results.wording import (
    ABSENT,
    chance_text,
    estimate_text,
    gain_text,
    interval_text,
    metric_title,
    number,
    remedies_text,
    time_text,
    unlike_text,
    value_text,
)

_TEMPLATES = Path(__file__).parent / "templates"

MOST_FRONT = 15
"""Points of the front that are listed; the plot has them all."""

MOST_TIED = 10
"""Runners-up that are listed with the decision; the table of trials marks them all."""

Spread = Mapping[str, Sequence[Distribution]]
"""How latencies are spread, of `best` and `baseline`."""


def write_page(page: View, folder: SweepFolder, among: Standing | None = None) -> None:
    """Write the report as one file; raises `StoreError`.

    `among` is the sweep's place among the past nights, where that is known.
    """
    html = page_html(page, among, latency_spread(page, folder))
    write_whole(folder.report, html.encode("utf-8", errors="replace"))


def latency_spread(page: View, folder: SweepFolder) -> Spread:
    """Read how the latencies of the best and of the baseline are spread, from raw requests."""
    selection = page.selection
    sides = {
        "baseline": selection.baseline,
        "best": selection.best.result if selection.best else None,
    }
    found = {
        role: distributions(
            folder.requests(result.trial.trial_id), _as_measured(result, selection.cell)
        )
        for role, result in sides.items()
        if result is not None and not (role == "baseline" and result is sides["best"])
    }
    return {role: each for role, each in found.items() if each}


def _as_measured(result: TrialResult, cell: Cell) -> Cell:
    """The cell under which the raw requests are kept: that of the step which a search found."""
    found = runs(result, cell)
    return Cell(cell.workload, found[-1].measured_level) if found else cell


def page_html(page: View, among: Standing | None = None, spread: Spread | None = None) -> str:
    """Lay out the whole report."""
    stored = page.stored
    front = with_front(points(stored.sweep, stored.trials))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            record=stored.record,
            command=_command(page),
            against_baseline=_against_baseline(page),
            front_plots=front_plots(page, front),
            front=front_points(front)[:MOST_FRONT],
            unlike=_unlike_best(page),
            effects_plot=effects_plot(page.effects.main, page.selection.metric),
            percentile_plots=percentile_plots(spread or {}, page.selection.cell),
            latency_plots=latency_plots(page),
            plots=plots(page),
            most_trials=MOST_TRIALS,
            failures=failure_groups(page.failures),
            hours_plot=hours_plot(page.hours, stored.record.started_at) if page.hours else None,
            spendings=tuple(Spending),
            among=among,
            nights_plot=_nights_plot(page, among),
            bounds=tuple(bounds_text(stored)),
            workloads=tuple(workload_row(workload) for workload in stored.sweep.workloads),
            stacks=tuple(stack_row(report) for report in stored.record.stacks),
            most_tied=MOST_TIED,
            absent=ABSENT,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "gain": gain_text,
        "interval": interval_text,
        "estimate": estimate_text,
        "number": number,
        "metric": metric_title,
        "time": time_text,
        "value": value_text,
        "duration": show_duration,
        "remedies": remedies_text,
        "breakable": _breakable,
        "shift": regression_text,
        "chance": chance_text,
    }
    return environment


def _nights_plot(page: View, among: Standing | None) -> Plot | None:
    """The objective of the best and of the baseline, over the nights that measured them."""
    if among is None:
        return None
    selection = page.selection
    sides = {
        "baseline": selection.baseline,
        "best": selection.best.result if selection.best else None,
    }
    levels = [
        (role, level)
        for role, result in sides.items()
        for level in among.levels
        if result is not None
        and (role == "best" or result is not sides["best"])
        and level.trial_id == result.trial.trial_id
        and (level.cell, level.metric) == (selection.cell, selection.metric)
    ]
    return nights_plot(levels, among.shifts) if levels else None


def _unlike_best(page: View) -> Mapping[str, str]:
    """Name each trial by what it has otherwise than the best, if there is a best."""
    best = page.selection.best
    axes = best.result.trial.axes if best else {}
    trials = [row.result.trial for row in page.rows]
    return {each.trial_id: unlike_text(each.axes, axes) or "the best" for each in trials}


def _breakable(name: str) -> Markup:
    """Let a long name break after a dot or an underscore, and nowhere else."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[._/])", name))


def _command(page: View) -> str:
    best = page.selection.best
    return (best and deploy_command(best.result)) or ""


def _against_baseline(page: View) -> TrialComparison | None:
    """Compare the best with the baseline at every level, not only where it was chosen."""
    best, baseline = page.selection.best, page.selection.baseline
    if best is None or baseline is None or best.result is baseline or not baseline.levels:
        return None
    return compare(best.result, baseline, metrics=page.metrics, force=True)
