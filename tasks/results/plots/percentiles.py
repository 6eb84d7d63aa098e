"""How latencies are spread: the best against the baseline, ever rarer towards the right."""

from collections.abc import Iterator, Mapping, Sequence

import altair as alt

from tasks.results.cells import Cell
from tasks.results.distributions import Distribution
from tasks.results.plots.chart import COLOUR, Datum, Plot, chart, svg
from tasks.results.wording import number

_HEIGHT = 260
_NAMES = {"ttft": "Time to first token", "itl": "Gap between tokens"}
_RARITIES = (1, 2, 4, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_LABELS = ("0 %", "50 %", "75 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %")


def percentile_plots(found: Mapping[str, Sequence[Distribution]], cell: Cell) -> tuple[Plot, ...]:
    """Draw each latency's percentiles; `found` are the distributions by `best` and `baseline`."""
    return tuple(plot for latency in _NAMES if (plot := _plot(latency, found, cell)) is not None)


def _plot(latency: str, found: Mapping[str, Sequence[Distribution]], cell: Cell) -> Plot | None:
    drawn = {role: one for role, all_ in found.items() for one in all_ if one.latency == latency}
    if not drawn:
        return None
    data = [
        {"role": role, "rarity": 1 / (1 - share), "ms": max(ms, 1e-3)}
        for role, one in drawn.items()
        for share, ms in one.points
    ]
    title = f"{_NAMES[latency]} at {cell}, by percentile"
    words = "; ".join(f"{role} {_words(one)}" for role, one in drawn.items())
    return Plot(title, f"{title}: {words}.", svg(_layers(data, latency), _HEIGHT))


def _words(one: Distribution) -> str:
    told = [f"{number(_at(one, share))} ms at {share:.0%}" for share in (0.5, 0.9, 0.99)]
    return ", ".join(told) + f" of {one.count:,}"


def _at(one: Distribution, share: float) -> float:
    return min(one.points, key=lambda point: abs(point[0] - share))[1]


def _layers(data: Sequence[Datum], latency: str) -> Iterator[alt.Chart]:
    rarest = max(datum["rarity"] for datum in data)
    ticks = [rarity for rarity in _RARITIES if rarity <= rarest * 1.01]
    labels = "{" + ", ".join(f"'{r}': '{_LABELS[n]}'" for n, r in enumerate(_RARITIES)) + "}"
    axis = alt.Axis(values=ticks, labelExpr=f"({labels})[datum.value]")
    scale = alt.Scale(type="log", domain=[1, rarest], nice=False)
    x = alt.X("rarity:Q", title="share of all that is at least so fast", axis=axis, scale=scale)
    y = alt.Y("ms:Q", title=f"{latency.upper()}, ms", scale=alt.Scale(zero=False, nice=True))
    for role in ("baseline", "best"):
        own = [datum for datum in data if datum["role"] == role]
        line = chart(own).mark_line(strokeWidth=2 if role == "baseline" else 2.5)
        yield line.encode(x=x, y=y, color=COLOUR)
