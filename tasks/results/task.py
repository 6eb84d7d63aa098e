"""Storing and reporting as Prefect tasks."""

import asyncio
import time

from prefect import task
from prefect.artifacts import acreate_table_artifact
from prefect.cache_policies import NO_CACHE

from tasks.domain.configuration import TrialResult
from tasks.domain.telling import if_possible
from tasks.results.conclusion import Conclusion, conclude
from tasks.results.folders import SweepFolder
from tasks.results.page import write_page
from tasks.results.regression import standing
from tasks.results.saving import save_trial
from tasks.results.store import load_sweep, set_state
from tasks.results.view import View, view


@task(name="store", task_run_name="store {result.trial.label}", cache_policy=NO_CACHE)
async def store_trial(folder: SweepFolder, result: TrialResult) -> TrialResult:
    """Store all that is known of a trial; the result comes back without its raw requests."""
    return await asyncio.to_thread(save_trial, folder, result)


@task(name="report", cache_policy=NO_CACHE)
async def write_report(folder: SweepFolder) -> Conclusion:
    """Compare the trials with each other and with the past nights, and write the HTML report.

    How the sweep ended is noted in the store.
    """
    stored = load_sweep(folder.store, folder.sweep_id)
    among = await asyncio.to_thread(standing, folder.store, folder.sweep_id, stored.sweep)
    conclusion = conclude(stored, among)
    set_state(folder, conclusion.state, now=time.time(), reason=conclusion.message)
    stored = load_sweep(folder.store, folder.sweep_id)
    await asyncio.to_thread(write_page, stored, folder.report)
    table = acreate_table_artifact(
        key="sweep-summary", table=_rows(view(stored)), description=conclusion.message
    )
    await if_possible(table)
    return conclusion


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
