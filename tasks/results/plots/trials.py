"""The plots with a row or a line a trial: the objective, throughput over the levels, latencies."""

import json
from collections.abc import Iterable, Iterator, Sequence

import altair as alt

from settings.workload import Largest
from tasks.domain.measurement import SearchRole
from tasks.results.cells import Cell, cell_estimate, workload_cells
from tasks.results.plots.chart import (
    BASELINE,
    COLOUR,
    HEIGHT,
    QUIET,
    ROW_HEIGHT,
    SHAPE,
    Datum,
    Plot,
    chart,
    svg,
)
from tasks.results.statistics import Estimate
from tasks.results.view import TrialRow, View
from tasks.results.wording import metric_title, number

MOST_TRIALS = 30
"""Rows of a plot with a row a trial: the best ones, since more can't be read."""


def plots(page: View) -> tuple[Plot, ...]:
    """Draw what was measured; nothing where nothing was."""
    rows = _shown(page)
    return (_objective(page, rows), *_over_levels(page)) if rows else ()


def latency_plots(page: View) -> tuple[Plot, ...]:
    """Draw the latencies of each trial; nothing where nothing was measured."""
    rows = _shown(page)
    return tuple(_latencies(page, rows)) if rows else ()


def _shown(page: View) -> list[TrialRow]:
    """The best rows, and the baseline's wherever it stands."""
    measured = _measured(page)
    missed = [row for row in measured[MOST_TRIALS:] if row.result.trial.baseline]
    return [*measured[: MOST_TRIALS - len(missed)], *missed]


def _measured(page: View) -> list[TrialRow]:
    cell, metric = page.selection.cell, page.selection.metric
    return [row for row in page.rows if cell_estimate(row.result, cell, metric) is not None]


def _objective(page: View, rows: Sequence[TrialRow]) -> Plot:
    """Draw the objective of each trial with its interval, and the baseline as a line."""
    cell, metric = page.selection.cell, page.selection.metric
    title = metric_title(metric)
    data = [
        {**named(row), **_interval(found)}
        for row in rows
        if (found := cell_estimate(row.result, cell, metric)) is not None
    ]
    layers = [*_baseline_line(data), *_dots(data, title, _trial_axis(page, rows))]
    return Plot(
        f"{title} at {cell}",
        f"{title} at {cell}, a row for each of {len(data)} trials: {_best_words(data)}.",
        svg(layers, alt.Step(ROW_HEIGHT)),
    )


def _dots(data: Sequence[Datum], title: str, where: alt.Y) -> Iterator[alt.Chart]:
    """Draw a mark at `mean` and a line from `low` to `high`, a row a trial."""
    axis = alt.Axis(title=title, tickCount=8)
    x = alt.X("low:Q", axis=axis, scale=alt.Scale(zero=False, nice=True))
    line = chart(data).mark_rule(strokeWidth=2)
    yield line.encode(x=x, x2="high:Q", y=where, color=COLOUR)
    dot = chart(data).mark_point(size=90, filled=True, opacity=1)
    yield dot.encode(x=alt.X("mean:Q"), y=where, color=COLOUR, shape=SHAPE)


def _baseline_line(data: Sequence[Datum]) -> Iterator[alt.Chart]:
    lines = [{"at": datum["mean"]} for datum in data if datum["role"] == "baseline"]
    if lines:
        mark = chart(lines).mark_rule(strokeDash=[4, 4], color=BASELINE)
        yield mark.encode(x=alt.X("at:Q"))


def _trial_axis(page: View, rows: Sequence[TrialRow]) -> alt.Y:
    """Lay out a row a trial, named by its values of the axes that vary."""
    labels = {row.result.trial.trial_id: _values(page, row) for row in rows}
    axis = alt.Axis(labelExpr=f"({json.dumps(labels)})[datum.value]", title=None)
    return alt.Y("trial:N", sort=None, axis=axis)


def _values(page: View, row: TrialRow) -> str:
    return " · ".join(row.axes) if page.axes else row.result.trial.label


def _over_levels(page: View) -> Iterator[Plot]:
    """Draw throughput over the levels of each workload that has several."""
    for workload in page.stored.sweep.workloads:
        levels = workload_cells(workload)
        if workload.largest is not None:
            yield from _searched(page, workload.name, workload.largest)
            continue
        data = list(_level_data(page, levels))
        if len(levels) < 2 or not data:
            continue
        asked = _asked(closed=bool(workload.concurrency))
        trials = len({datum["trial"] for datum in data})
        yield Plot(
            f"Output throughput over {asked.partition(',')[0]}, {workload.name}",
            f"Output tokens a second of {trials} trials over the levels "
            f"{', '.join(cell.level for cell in levels)} of {workload.name}.",
            svg(_lines(data, asked), HEIGHT),
        )


def _searched(page: View, workload: str, wanted: Largest) -> Iterator[Plot]:
    """Draw what share of the requests kept the SLO over the levels that a search has run."""
    data = [
        {
            **named(row),
            "x": level.concurrency if wanted.of == "concurrency" else level.request_rate,
            "y": level.metrics["slo_attainment"],
        }
        for row in _shown(page)
        for level in row.result.levels
        if level.workload == workload
        and level.search is SearchRole.STEP
        and "slo_attainment" in level.metrics
    ]
    if not data:
        return
    asked = _asked(closed=wanted.of == "concurrency")
    best = [datum for datum in data if datum["role"] == "best"]
    kept = [datum["x"] for datum in best if datum["y"] >= wanted.attainment]
    words = f"the best keeps it at {max(kept):g}" if kept else "the best isn't among them"
    title = f"Share of requests within the SLO over {asked.partition(',')[0]}, {workload}"
    x = alt.X("x:Q", title=asked, scale=alt.Scale(type="log", base=2))
    y = alt.Y("y:Q", title="within the SLO", axis=alt.Axis(format="%"), scale=_shares())
    limit = chart([{"y": wanted.attainment}]).mark_rule(strokeDash=[4, 4], color=QUIET)
    layers = [limit.encode(y=y), *_by_role(data, x, y)]
    yield Plot(title, f"{title}: {words}.", svg(layers, HEIGHT))


def _asked(*, closed: bool) -> str:
    return "concurrency" if closed else "request rate, 1/s"


def _shares() -> alt.Scale:
    return alt.Scale(domain=[0, 1], nice=False)


def _level_data(page: View, levels: Sequence[Cell]) -> Iterator[Datum]:
    for row in _measured(page):
        for cell in levels:
            found = cell_estimate(row.result, cell, "output_throughput")
            if found is not None:
                at = float(cell.level.removeprefix("c").removesuffix("/s"))
                yield {**named(row), "x": at, "y": found.mean}


def _lines(data: Sequence[Datum], asked: str) -> Iterator[alt.Chart]:
    levels = sorted({datum["x"] for datum in data})
    axis = alt.Axis(values=levels, format="~g")
    x = alt.X("x:Q", title=asked, axis=axis, scale=alt.Scale(type="log", base=2))
    return _by_role(data, x, alt.Y("y:Q", title="output tok/s"))


def _by_role(data: Sequence[Datum], x: alt.X, y: alt.Y) -> Iterator[alt.Chart]:
    """Draw the others thin and first, so that best and baseline lie on top."""
    for role, width in (("other", 1), ("baseline", 2), ("best", 2.5)):
        chosen = [datum for datum in data if datum["role"] == role]
        line = chart(chosen).mark_line(strokeWidth=width)
        yield line.encode(x=x, y=y, color=COLOUR, detail="trial:N")
        point = chart(chosen).mark_point(size=60, filled=True, opacity=1)
        yield point.encode(x=x, y=y, color=COLOUR, shape=SHAPE)


def _latencies(page: View, rows: Sequence[TrialRow]) -> Iterator[Plot]:
    """Draw median and 99th percentile of the first token and of the gaps, a row a trial."""
    cell = page.selection.cell
    for latency, name in (("ttft", "Time to first token"), ("itl", "Gap between tokens")):
        data = [
            {**named(row), "low": low.mean, "mean": low.mean, "high": high.mean}
            for row in rows
            if (low := cell_estimate(row.result, cell, f"median_{latency}_ms")) is not None
            and (high := cell_estimate(row.result, cell, f"p99_{latency}_ms")) is not None
        ]
        if data:
            title = f"{latency.upper()} ms, median to 99th percentile"
            where = _trial_axis(page, rows)
            layers = [*_dots(data, title, where), *_ends(data, where)]
            yield Plot(
                f"{name} at {cell}",
                f"{name} at {cell}, median and 99th percentile: {_latency_words(data)}.",
                svg(layers, alt.Step(ROW_HEIGHT)),
            )


def _ends(data: Sequence[Datum], where: alt.Y) -> Iterator[alt.Chart]:
    mark = chart(data).mark_tick(thickness=2, size=12)
    yield mark.encode(x=alt.X("high:Q"), y=where, color=COLOUR)


def named(row: TrialRow) -> Datum:
    """Tell whose datum it is, and whether that trial stands out."""
    trial = row.result.trial
    role = "best" if row.best else "baseline" if trial.baseline else "other"
    return {"trial": trial.trial_id, "role": role}


def _interval(found: Estimate) -> Datum:
    low = high = found.mean
    if found.interval is not None:
        low, high = found.interval.low, found.interval.high
    return {"mean": found.mean, "low": low, "high": high}


def _best_words(data: Iterable[Datum]) -> str:
    words = [f"{d['role']} {number(d['mean'])}" for d in data if d["role"] != "other"]
    return ", ".join(words) or "none is the best or the baseline"


def _latency_words(data: Iterable[Datum]) -> str:
    named = [d for d in data if d["role"] != "other"]
    words = [f"{d['role']} {number(d['mean'])} and {number(d['high'])} ms" for d in named]
    return ", ".join(words) or "a row a trial"
