"""What each axis does to the objective, a row a value."""

import json
from collections.abc import Iterator, Sequence

import altair as alt

from tasks.results.effects import MainEffect
from tasks.results.plots.chart import BEST, GRID, INK, OTHER, ROW_HEIGHT, Datum, Plot, chart, svg
from tasks.results.wording import gain_text, metric_title


def effects_plot(main: Sequence[MainEffect], metric: str) -> Plot | None:
    """Draw each value's effect with its interval, over the range of the pairs it comes from."""
    if not main:
        return None
    data = [_datum(number, effect) for number, effect in enumerate(main)]
    strongest = max(main, key=lambda effect: abs(effect.gain.value - 1))
    words = f"the strongest is {strongest.setting}, {gain_text(strongest.gain)}"
    title = f"What each axis does to {metric_title(metric)}, all else equal"
    return Plot(title, f"{title}: {words}.", svg(_layers(main, data), alt.Step(ROW_HEIGHT)))


def _datum(number: int, effect: MainEffect) -> Datum:
    gain, interval = effect.gain, effect.gain.interval
    low, high = (interval.low, interval.high) if interval else (gain.value, gain.value)
    found = {
        "low": low,
        "mean": gain.value,
        "high": high,
        "worst": effect.worst,
        "best": effect.best,
    }
    return {"row": number, **{name: 100 * (value - 1) for name, value in found.items()}}


def _layers(main: Sequence[MainEffect], data: Sequence[Datum]) -> Iterator[alt.Chart]:
    labels = [str(effect.setting) for effect in main]
    axis = alt.Axis(labelExpr=f"({json.dumps(labels)})[datum.value]", title=None)
    y = alt.Y("row:O", axis=axis, sort=None)
    x = alt.X("worst:Q", title="change, % (better is to the right)")
    zero = chart([{"at": 0}]).mark_rule(color=INK, strokeWidth=1)
    yield zero.encode(x=alt.X("at:Q"))
    yield chart(data).mark_bar(height=12, color=GRID, opacity=0.9).encode(x=x, x2="best:Q", y=y)
    yield chart(data).mark_rule(strokeWidth=2, color=OTHER).encode(x="low:Q", x2="high:Q", y=y)
    dots = chart(data).mark_point(size=70, filled=True, opacity=1, color=BEST)
    yield dots.encode(x="mean:Q", y=y)
