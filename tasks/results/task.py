"""Storing and reporting as Prefect tasks."""

import asyncio
import time
from dataclasses import dataclass, replace

from prefect import task
from prefect.artifacts import (
    acreate_image_artifact,
    acreate_markdown_artifact,
    acreate_table_artifact,
)
from prefect.cache_policies import NO_CACHE

from tasks.domain.configuration import TrialResult
from tasks.domain.telling import if_possible
from tasks.results.alerts import Alert, alerts, decision_text
from tasks.results.conclusion import Conclusion, conclude
from tasks.results.folders import SweepFolder
from tasks.results.page import write_page
from tasks.results.pictures import front_pictures
from tasks.results.regression import Standing, standing
from tasks.results.saving import TrialStore
from tasks.results.spending import hours_of
from tasks.results.store import load_sweep, load_sweep_record, set_state
from tasks.results.story import story
from tasks.results.view import View, view


@dataclass(frozen=True, slots=True)
class Reported:
    """How a sweep ended, what is best in a line, and what is to be told of it."""

    conclusion: Conclusion
    decision: str
    alerts: tuple[Alert, ...]


@task(name="store", task_run_name="store {result.trial.label}", cache_policy=NO_CACHE)
async def store_trial(trials: TrialStore, result: TrialResult) -> TrialResult:
    """Store all that is known of a trial; the result comes back without its raw requests."""
    return await asyncio.to_thread(trials.save, result)


@task(name="report", cache_policy=NO_CACHE)
async def write_report(folder: SweepFolder) -> Reported:
    """Compare the trials with each other and with the past nights, and write the HTML report.

    How the sweep ended is noted in the store; what is to be told of it comes back.
    """
    page, among = await asyncio.to_thread(_read, folder)
    conclusion = conclude(page, among)
    set_state(folder, conclusion.state, now=time.time(), reason=conclusion.message)
    ended = replace(page.stored, record=load_sweep_record(folder))
    page = replace(page, stored=ended, hours=hours_of(ended))
    await asyncio.to_thread(write_page, page, folder, among)
    report, decision = str(folder.report.resolve()), decision_text(page.selection)
    told = acreate_markdown_artifact(
        markdown=story(page, conclusion, report), key="report", description=decision
    )
    await if_possible(told)
    await _show(page, conclusion)
    return Reported(conclusion, decision, alerts(page, conclusion, report))


def _read(folder: SweepFolder) -> tuple[View, Standing]:
    stored = load_sweep(folder.store, folder.sweep_id)
    return view(stored), standing(folder.store, folder.sweep_id, stored.sweep)


async def _show(page: View, conclusion: Conclusion) -> None:
    """Put the table of trials and the plot of what is to be had into the UI."""
    table = acreate_table_artifact(
        key="sweep-summary", table=_rows(page), description=conclusion.message
    )
    await if_possible(table)
    for key, picture in await asyncio.to_thread(lambda: list(front_pictures(page))):
        said = "throughput per GPU against speed per user: what is to be had at once"
        await if_possible(acreate_image_artifact(key=key, image_url=picture, description=said))


def _rows(page: View) -> list[dict[str, object]]:
    """The trials as the UI's table shows them, the best first."""
    return [
        {
            "trial": row.result.trial.label,
            "verdict": str(row.result.verdict),
            **dict(zip(page.metrics, row.metrics, strict=True)),
            "note": row.note,
        }
        for row in page.rows
    ]
