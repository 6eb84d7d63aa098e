"""The report as markdown, for a pull request or a chat: the decision, its table, what failed."""

import re
from collections.abc import Iterator

from tasks.domain.page import fenced
from tasks.results.command_line import deploy_command
from tasks.results.provenance import bounds_text
from tasks.results.regression import Standing, regression_text
from tasks.results.selection import Candidate
from tasks.results.spending import Hours
from tasks.results.view import TrialRow, View, failure_groups
from tasks.results.wording import (
    chance_text,
    estimate_text,
    gain_text,
    interval_text,
    metric_title,
    remedies_text,
    time_text,
)

MOST_ROWS = 10
"""Trials in the table, the baseline among them; the HTML page has all."""

_METRICS = 4
_SPECIAL = re.compile(r"[\\`*\[\]<>|#]|(?<!\w)_|_(?!\w)")
"""What markdown reads as more than itself; an underscore within a word it leaves alone."""


def report_markdown(page: View, among: Standing | None = None) -> str:
    """Write the report; every text that a server or a person wrote is escaped."""
    parts = [*_head(page), *_decision(page), *_regressions(among), _table(page), *_axes(page)]
    parts += [*_failures(page), *_hours(page.hours)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(page: View) -> Iterator[str]:
    record = page.stored.record
    state = record.state.replace("_", " ")
    yield f"### {_text(record.sweep.name)} on {_text(record.sweep.host)}: {state}"
    took = f", took {page.lasted}" if page.lasted else ""
    yield f"{time_text(record.started_at)}{took}. {page.counts}."


def _decision(page: View) -> Iterator[str]:
    selection = page.selection
    best = selection.best
    if best is None:
        yield "**No configuration is measured, correct and within the constraints.**"
        return
    title = metric_title(selection.metric)
    yield (
        f"**{_text(best.result.trial.label)}**: {estimate_text(best.objective)} {title} at "
        f"{_text(str(selection.cell))}{_gain(best)}.{_sure(page)}"
    )
    if best.result.remedies:
        word = "Altered by" if best.result.altered else "Measured with"
        yield f"{word} {_text(remedies_text(best.result))}."
    command = deploy_command(best.result)
    if command:
        yield fenced(command, "sh")


def _gain(best: Candidate) -> str:
    if best.result.trial.baseline:
        return ", the baseline itself: nothing that was measured beats it"
    if best.gain is None:
        return ""
    interval = interval_text(best.gain) or "one run on a side, no interval"
    return f", {gain_text(best.gain)} over the baseline ({interval})"


def _sure(page: View) -> str:
    selection = page.selection
    told = ""
    if selection.certainty is not None and len(selection.ranked) > 1:
        told = f" Truly the best of {len(selection.ranked)} with a probability of "
        told += f"{chance_text(selection.certainty)}."
    if selection.tied:
        told += f" {len(selection.tied)} can't be told from it (≈)."
    return told


def _regressions(among: Standing | None) -> Iterator[str]:
    for shift in among.regressions if among else ():
        yield f"**Regression:** {_text(regression_text(shift))}."


def _table(page: View) -> str:
    """Lay out the first rows, the baseline among them wherever it stands."""
    if not page.rows:
        return ""
    shown = list(page.rows[:MOST_ROWS])
    missed = [row for row in page.rows[MOST_ROWS:] if row.result.trial.baseline]
    shown = [*shown[: MOST_ROWS - len(missed)], *missed]
    axes = page.axes or ("trial",)
    metrics = [metric_title(metric) for metric in page.metrics[:_METRICS]]
    heads = ["", *map(_text, axes), "verdict", *metrics, "against baseline"]
    rules = ["---"] * (2 + len(axes)) + ["---:"] * (len(metrics) + 1)
    lines = [heads, rules, *(list(_row(page, row)) for row in shown)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    left = len(page.rows) - len(shown)
    bounds = "; ".join(bounds_text(page.stored))
    notes = [f"to be chosen: {_text(bounds)}"] if bounds else []
    notes += [f"{left} more trials"] if left else []
    return table + (f"\n\n{'; '.join(notes)}" if notes else "")


def _row(page: View, row: TrialRow) -> Iterator[str]:
    trial = row.result.trial
    yield "★" if row.best else "≈" if row.tied else ""
    yield from (_text(value) for value in (row.axes if page.axes else (trial.label,)))
    yield str(row.result.verdict)
    yield from row.metrics[:_METRICS]
    yield "baseline" if trial.baseline else gain_text(row.gain)


def _axes(page: View) -> Iterator[str]:
    """What each axis does and what two do together, in a line each."""
    lines = [
        f"- {_text(str(effect.setting))}: {gain_text(effect.gain)}"
        + (f" ({found})" if (found := interval_text(effect.gain)) else "")
        for effect in page.effects.main
    ]
    for one in page.effects.interactions:
        if one.certain:
            both = f"{one.first} with {one.second}"
            lines.append(f"- {_text(both)}: {gain_text(one.gain)} beyond what each does alone")
    if lines:
        title = f"What each axis does to {metric_title(page.selection.metric)}"
        yield _folded(title, "\n".join(lines))


def _failures(page: View) -> Iterator[str]:
    groups = failure_groups(page.failures)
    if groups:
        lines = [
            f"- {group.launches} × **{_text(group.first.mode)}**: "
            f"{_text(group.first.explanation.rstrip('.'))}; {_text(group.outcome)}"
            + (f"; cure: {_text(group.first.cure)}" if group.first.cure else "")
            for group in groups
        ]
        yield _folded("Failed launches", "\n".join(lines))


def _hours(hours: Hours | None) -> Iterator[str]:
    if hours is not None:
        yield f"{hours}."


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _text(words: str) -> str:
    """Take every character for what it is, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(words.split()))
