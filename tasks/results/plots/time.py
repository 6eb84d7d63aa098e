"""Plots over time: what the hours of this night went on, and what the nights before measured."""

from collections.abc import Iterator, Sequence

import altair as alt

from tasks.results.plots.chart import (
    BASELINE,
    BEST,
    COLOUR,
    KINDS,
    OTHER,
    SHAPE,
    Datum,
    Plot,
    chart,
    svg,
)
from tasks.results.regression import Level, LevelShift
from tasks.results.spending import Hours, Spending
from tasks.results.wording import metric_title, number, time_text

_HEIGHT = 220
_STRIP_HEIGHT = 110
_SLICES = 200
_KINDS = tuple(Spending)


def hours_plot(night: Hours, started_at: float) -> Plot | None:
    """Draw the night from left to right: what each slice of it went on."""
    if not night.stretches:
        return None
    unit_s, unit = (3600, "hours") if night.total_s > 2 * 3600 else (60, "minutes")
    width = night.total_s / _SLICES
    data = [
        {
            "what": str(kind),
            "order": _KINDS.index(kind),
            "from": number * width / unit_s,
            "to": (number + 1) * width / unit_s,
            "share": share,
        }
        for number, shares in enumerate(night.slices(started_at, _SLICES))
        for kind, share in shares.items()
        if share > 0
    ]
    kinds = [str(kind) for kind in _KINDS]
    ends = alt.Scale(domain=[0, night.total_s / unit_s], nice=False)
    x = alt.X("from:Q", title=f"{unit} since {time_text(started_at)}", scale=ends)
    y = alt.Y("share:Q", title=None, stack="zero", scale=alt.Scale(domain=[0, 1], nice=False))
    y = y.axis(format="%", tickCount=2)
    colour = alt.Color("what:N", scale=alt.Scale(domain=kinds, range=list(KINDS)), legend=None)
    bars = chart(data).mark_bar().encode(x=x, x2="to:Q", y=y, color=colour, order="order:O")
    words = ", ".join(f"{kind} {night.share(kind):.0%}" for kind in _KINDS)
    return Plot("What the hours went on", f"The night's time: {words}.", svg([bars], _STRIP_HEIGHT))


def nights_plot(levels: Sequence[tuple[str, Level]], shifts: Sequence[LevelShift]) -> Plot | None:
    """Draw the objective night after night; `levels` are tonight's, each with its role."""
    data = [
        {"role": role, "at": at * 1000, "value": value}
        for role, level in levels
        for at, value in level.past
    ]
    if len({datum["at"] for datum in data}) < 2:
        return None
    _, first = levels[0]
    title = f"{metric_title(first.metric)} at {first.cell}, night after night"
    words = "; ".join(
        f"{role} {number(level.past[-1][1])} tonight, {number(level.past[0][1])} at first"
        for role, level in levels
        if level.past
    )
    return Plot(title, f"{title}: {words}.", svg(_night_layers(data, levels, shifts), _HEIGHT))


def _night_layers(
    data: Sequence[Datum], levels: Sequence[tuple[str, Level]], shifts: Sequence[LevelShift]
) -> Iterator[alt.Chart]:
    x = alt.X("at:T", title=None, axis=alt.Axis(format="%b %d", tickCount=10), scale=_utc())
    title = metric_title(levels[0][1].metric)
    y = alt.Y("value:Q", title=title, scale=_from_data())
    began = [{"at": shift.began.started_at * 1000} for shift in shifts]
    yield chart(began).mark_rule(color=OTHER, strokeDash=[4, 4]).encode(x=x)
    for role, level in levels:
        if level.band is not None and level.past:
            band = {"at": level.past[-1][0] * 1000, "low": level.band.low, "high": level.band.high}
            colour = BEST if role == "best" else BASELINE
            mark = chart([band]).mark_rule(strokeWidth=9, opacity=0.3, color=colour)
            yield mark.encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    yield chart(data).mark_line(strokeWidth=2).encode(x=x, y=y, color=COLOUR)
    marks = chart(data).mark_point(size=50, filled=True, opacity=1)
    yield marks.encode(x=x, y=y, color=COLOUR, shape=SHAPE)


def _from_data() -> alt.Scale:
    return alt.Scale(zero=False, nice=True)


def _utc() -> alt.Scale:
    return alt.Scale(type="utc")
