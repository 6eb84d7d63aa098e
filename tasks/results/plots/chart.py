"""How every plot of the report is drawn: as SVG that follows the page's colours, light or dark."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt
import orjson
import vl_convert

# Colours that no chart uses by itself; each stands for a variable of the page's style sheet.
INK, QUIET, GRID = "#010101", "#020202", "#030303"
BEST, BASELINE, OTHER = "#040404", "#050505", "#060606"
KINDS = ("#070701", "#070702", "#070703", "#070704", "#070705")
_VARIABLES = {
    INK: "var(--ink)",
    QUIET: "var(--quiet)",
    GRID: "var(--line)",
    BEST: "var(--best)",
    BASELINE: "var(--baseline)",
    OTHER: "var(--other)",
    **{colour: f"var(--kind-{number})" for number, colour in enumerate(KINDS)},
}
_PAPER = {
    "var(--ink)": "#1b2127",
    "var(--quiet)": "#57606a",
    "var(--line)": "#d9dee4",
    "var(--best)": "#0b7a4b",
    "var(--baseline)": "#2f5fb3",
    "var(--other)": "#7d8790",
    "var(--kind-0)": "#0b7a4b",
    "var(--kind-1)": "#2f5fb3",
    "var(--kind-2)": "#7c55b8",
    "var(--kind-3)": "#b3261e",
    "var(--kind-4)": "#aeb6be",
}
"""What the variables are on white paper, for a picture that has no style sheet."""

_ROLES = ("best", "baseline", "other")
COLOUR = alt.Color(
    "role:N", scale=alt.Scale(domain=_ROLES, range=[BEST, BASELINE, OTHER]), legend=None
)
SHAPE = alt.Shape(
    "role:N", scale=alt.Scale(domain=_ROLES, range=["diamond", "square", "circle"]), legend=None
)

_WIDTH = 1036
HEIGHT = 300
# Labels are measured in a font that may be narrower than the reader's.
_PADDING = {"left": 20, "top": 4, "right": 12, "bottom": 4}
ROW_HEIGHT = 24

_TEXT = {"labelColor": INK, "titleColor": QUIET, "labelFontSize": 12, "titleFontSize": 12}
_LINES = {"gridColor": GRID, "domainColor": GRID, "tickColor": GRID}
_CONFIG = {
    "font": "system-ui, sans-serif",
    "background": "transparent",
    "padding": _PADDING,
    "view": {"strokeWidth": 0},
    "axis": {**_TEXT, **_LINES, "titleFontWeight": "normal", "titlePadding": 8},
    "axisY": {"labelLimit": 360, "ticks": False, "labelPadding": 8},
    "text": {"fontSize": 12},
}

Datum = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure: its title, what it shows in words (for those who don't see it), and the SVG."""

    title: str
    alt: str
    svg: str


def chart(values: Sequence[Datum]) -> alt.Chart:
    """Begin a chart with its data, as text: Altair copies and checks each value of a list."""
    text = orjson.dumps(list(values)).decode()
    return alt.Chart(alt.InlineData(values=text, format=alt.JsonDataFormat(type="json")))


def svg(layers: Iterable[alt.Chart], height: int | alt.Step) -> str:
    """Draw layers as one chart as wide as the page, its colours following the page."""
    # Altair has checked every part of it; the whole once more would take a tenth of the time,
    # and it copies a chart as often as something is said of it.
    spec = alt.layer(*layers).to_dict(validate=False)
    spec |= {"width": _WIDTH, "height": height if isinstance(height, int) else height.to_dict()}
    spec |= {"autosize": {"type": "fit-x", "contains": "padding"}, "config": _CONFIG}
    return _drawn(orjson.dumps(spec).decode())


@lru_cache(maxsize=32)
def _drawn(spec: str) -> str:
    """Draw a chart; the report and Prefect's pictures show some of the same."""
    found: str = vl_convert.vegalite_to_svg(spec)
    for colour, variable in _VARIABLES.items():
        found = found.replace(colour, variable)
    return found


def png(plot: Plot) -> bytes:
    """Draw a plot on white paper as a PNG, for where no style sheet and no SVG is understood."""
    drawn = plot.svg
    for variable, colour in _PAPER.items():
        drawn = drawn.replace(variable, colour)
    picture: bytes = vl_convert.svg_to_png(drawn.replace("transparent", "#ffffff"))
    return picture
