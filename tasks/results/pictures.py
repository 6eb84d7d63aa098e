"""Plots as pictures for Prefect's UI, which takes an address: the picture itself, as a data URI."""

import base64
import re
from collections.abc import Iterator

from tasks.results.pareto import points, with_front
from tasks.results.plots.chart import png
from tasks.results.plots.front import front_plots
from tasks.results.view import View


def front_pictures(page: View) -> Iterator[tuple[str, str]]:
    """Draw the front of each workload: an artifact's key, and the address of its picture."""
    stored = page.stored
    front = with_front(points(stored.sweep, stored.trials))
    workloads = front["workload"].unique(maintain_order=True)
    for workload, plot in zip(workloads, front_plots(page, front), strict=True):
        picture = base64.b64encode(png(plot)).decode()
        yield f"pareto-{artifact_key(workload)}", f"data:image/png;base64,{picture}"


def artifact_key(name: str) -> str:
    """Write a name as Prefect's keys have it: small letters, digits, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "workload"
