"""`sglang-sweep run`: a sweep from the command line, with live progress and the report."""

import asyncio
from pathlib import Path

import httpx
from rich.console import Console
from rich.markup import escape

from flows.commands.embedded_api import ApiUnavailable, prefect_api
from flows.commands.live import shown
from flows.commands.report import print_stored
from flows.opening import requested
from settings.application import Settings
from settings.nodes import hosts_of
from settings.sweep import Sweep
from tasks.domain.errors import ExitStatus
from tasks.domain.progress import Progress, report
from tasks.results.conclusion import NEEDS_PERSON, WRONG_INPUT
from tasks.results.folders import SweepFolder
from tasks.results.records import SweepState
from tasks.results.store import load_sweep_record, sweep_ids


async def run_sweep(
    sweep: Sweep | None,
    resume: str | None,
    settings: Settings,
    out: Console,
    prefect_home: str | None = None,
) -> int:
    """Run a sweep to its end and print the report; the exit status says how it ended."""
    known = _newest(settings)
    _refuse_early(sweep, resume, settings)
    with shown(out):
        report(Progress("start", detail="waiting for the Prefect API"))
        async with prefect_api(prefect_home):
            from flows.outcome import data_of
            from flows.sweep import sweep as sweep_flow

            try:
                state = await sweep_flow(sweep, resume, return_state=True)
            except asyncio.CancelledError:
                newest = _newest(settings)
                begun = resume or (newest if newest != known else None)
                if begun:
                    out.print(f"finished trials are kept: sglang-sweep run --resume {begun}")
                raise
            except httpx.HTTPError as error:
                newest = _newest(settings)
                if newest is None or (newest == known and resume is None):
                    raise ApiUnavailable(_api_lost(error, settings)) from error
                return _told_by_store(newest, error, settings, out)
        sweep_id = await data_of(state, str)
    if not sweep_id:
        out.print(f"[red]{state.name}[/]: {escape(state.message or '')}", soft_wrap=True)
        wrong = state.name == WRONG_INPUT
        return ExitStatus.BAD_INPUT if wrong else ExitStatus.HOST_NEEDS_PERSON
    print_stored(sweep_id, out, write=False)
    if state.is_completed():
        return ExitStatus.OK
    out.print(f"[red]{state.name}[/]: {escape(state.message or '')}", soft_wrap=True)
    needs_person = state.name == NEEDS_PERSON
    return ExitStatus.HOST_NEEDS_PERSON if needs_person else ExitStatus.NOTHING_FEASIBLE


def _told_by_store(sweep_id: str, error: Exception, settings: Settings, out: Console) -> int:
    """Report a sweep whose end Prefect couldn't be told: what was measured is in the store."""
    record = load_sweep_record(SweepFolder(Path(settings.store), sweep_id))
    if record.state is SweepState.RUNNING:
        raise ApiUnavailable(_api_lost(error, settings)) from error
    print_stored(sweep_id, out, write=False)
    text = "the Prefect API went away meanwhile: its UI lacks the end of this sweep"
    out.print(f"[yellow]{text}[/]", soft_wrap=True)
    good = record.state in (SweepState.COMPLETED, SweepState.COMPLETED_WITH_FAILURES)
    return ExitStatus.OK if good else ExitStatus.NOTHING_FEASIBLE


def _refuse_early(sweep: Sweep | None, resume: str | None, settings: Settings) -> None:
    """Refuse what can't be run before anything is started."""
    asked = requested(sweep, resume, Path(settings.store))
    hosts_of(settings, asked)


def _api_lost(error: Exception, settings: Settings) -> str:
    """What to do when Prefect's API went away in the middle: nothing that was measured is lost."""
    return (
        f"the Prefect API went away ({error or type(error).__name__}); finished trials are kept: "
        f"start the API again, then sglang-sweep run --resume {_newest(settings)}"
    )


def _newest(settings: Settings) -> str | None:
    """The newest sweep of the store."""
    return next(iter(sweep_ids(Path(settings.store))), None)
