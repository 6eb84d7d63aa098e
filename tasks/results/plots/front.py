"""What is to be had at once: throughput per GPU against speed per user."""

from collections.abc import Iterator, Sequence

import altair as alt
import polars as pl

from tasks.results.pareto import GPU, USER
from tasks.results.plots.chart import COLOUR, OTHER, QUIET, SHAPE, Datum, Plot, chart, svg
from tasks.results.plots.trials import named
from tasks.results.view import View
from tasks.results.wording import number

_HEIGHT = 380


def front_plots(page: View, points: pl.DataFrame) -> tuple[Plot, ...]:
    """Draw the points of each workload and their front; `points` say which are on it."""
    roles = {row.result.trial.trial_id: named(row)["role"] for row in page.rows}
    return tuple(
        _plot(str(workload), [{**row, "role": roles[row["trial_id"]]} for row in of_it.to_dicts()])
        for (workload,), of_it in points.group_by("workload", maintain_order=True)
    )


def _plot(workload: str, data: Sequence[Datum]) -> Plot:
    front = [datum for datum in data if datum["on_front"]]
    ends = (front[0], front[-1])
    words = " to ".join(f"{number(d[USER])} and {number(d[GPU])} ({d['level']})" for d in ends)
    return Plot(
        f"Throughput per GPU against speed per user, {workload}",
        f"{len(data)} points, {len(front)} of them on the front; tokens a second per user and per "
        f"GPU from {words}.",
        svg(_layers(data, front), _HEIGHT),
    )


def _layers(data: Sequence[Datum], front: Sequence[Datum]) -> Iterator[alt.Chart]:
    """Draw what is beaten faintly, the front as steps, and best and baseline over all levels."""
    x = alt.X(f"{USER}:Q", title="output tokens/s per user (1 / median TPOT)", scale=_from_data())
    y = alt.Y(f"{GPU}:Q", title="output tokens/s per GPU", scale=_from_data())
    beaten = [datum for datum in data if not datum["on_front"] and datum["role"] == "other"]
    yield chart(beaten).mark_point(size=22, filled=True, opacity=0.35, color=OTHER).encode(x=x, y=y)
    steps = chart(front).mark_line(color=QUIET, strokeWidth=1.5, interpolate="step-before")
    yield steps.encode(x=x, y=y)
    for role in ("baseline", "best"):
        own = [datum for datum in data if datum["role"] == role]
        line = chart(own).mark_line(strokeDash=[4, 4], strokeWidth=1.5)
        yield line.encode(x=x, y=y, color=COLOUR)
    marked = [datum for datum in data if datum["role"] != "other" or datum["on_front"]]
    marks = chart(marked).mark_point(size=80, filled=True, opacity=1)
    yield marks.encode(x=x, y=y, color=COLOUR, shape=SHAPE)


def _from_data() -> alt.Scale:
    return alt.Scale(zero=False, nice=True)
