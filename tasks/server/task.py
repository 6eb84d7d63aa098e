"""The server's steps as Prefect tasks."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from prefect import task
from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    aupdate_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Failed

from settings.sweep import Canary
from tasks.domain.answer import Answer
from tasks.domain.configuration import Attempt
from tasks.domain.diagnosis import Diagnosis, Doctor
from tasks.domain.page import Page, page_key
from tasks.domain.progress import Progress, listener
from tasks.domain.telling import if_possible
from tasks.server.attempt import make_attempt
from tasks.server.canary import CanaryReport, ask, judge
from tasks.server.order import Launched, LaunchOrder
from tasks.server.showing import EVERY_S, LAST_LINES, Heard, Trickle, share_done
from tasks.server.site import Site


@task(
    name="launch",
    task_run_name="launch {order.label} attempt={order.number}",
    cache_policy=NO_CACHE,
)
async def launch_server(
    order: LaunchOrder, site: Site, doctor: Doctor, page: Page
) -> Launched | State[Launched]:
    """Launch a server and wait until it serves; a failure is a state that names its cause."""
    async with _shown_live(order):
        launched = await make_attempt(order, site, doctor)
    diagnosis = launched.attempt.diagnosis
    if diagnosis is None:
        return launched
    await _show(order, await page(launched.attempt, launched.log), diagnosis)
    name = f"LaunchFailed: {diagnosis.mode}"
    return Failed(name=name, message=diagnosis.explanation, data=launched)


@asynccontextmanager
async def _shown_live(order: LaunchOrder) -> AsyncIterator[None]:
    """Keep a progress artifact and the task's log up to date while the body launches a server."""
    heard, trickle, before = Heard(), Trickle(), listener.get()

    def hear(progress: Progress) -> None:
        before(progress)
        heard.take_in(progress)

    token = listener.set(hear)
    showing = asyncio.create_task(_keep_showing(order, heard, trickle))
    try:
        yield
    finally:
        listener.reset(token)
        showing.cancel()
        # Waited for, not awaited: whatever it ended with is no reason to fail a launch.
        await asyncio.wait((showing,))
        trickle.allow(LAST_LINES)
        _log(trickle, heard.lines(to_the_end=True))


async def _keep_showing(order: LaunchOrder, heard: Heard, trickle: Trickle) -> None:
    """Tell the UI again and again, as long as it listens; a short launch needs no bar."""
    began, bar, listens = time.monotonic(), None, True
    while listens:
        await asyncio.sleep(EVERY_S)
        _log(trickle, heard.lines())
        share = share_done(order.expected_s, heard.progress, time.monotonic() - began)
        bar = await if_possible(_bar(order, bar, share, heard.progress))
        listens = bar is not None


async def _bar(order: LaunchOrder, bar: UUID | None, share: float, heard: Progress | None) -> UUID:
    """Create or update the launch's progress artifact, under a key that is the same every night."""
    text = f"{order.label}, attempt {order.number}: {heard.detail if heard else 'starting'}"
    if bar is None:
        key = f"launch-{order.trial_id}"
        return await acreate_progress_artifact(progress=share, key=key, description=text)
    await aupdate_progress_artifact(bar, progress=share, description=text)
    return bar


def _log(trickle: Trickle, lines: list[str]) -> None:
    """Put lines of the server's log into the task's."""
    if lines:
        logger = get_run_logger()
        for line in trickle.through(lines, time.monotonic()):
            logger.info("server: %s", line)


@task(
    name="diagnose",
    task_run_name="diagnose {order.label} attempt={order.number}",
    cache_policy=NO_CACHE,
)
async def tell_death(order: LaunchOrder, attempt: Attempt, log: str, page: Page) -> State[str]:
    """Show why a server that had served is of no use any more, as a state that names the cause."""
    diagnosis = attempt.diagnosis
    if diagnosis is None:
        raise ValueError(f"attempt {attempt.number} has no diagnosis to tell")
    await _show(order, await page(attempt, log), diagnosis)
    return Failed(name=f"ServerDied: {diagnosis.mode}", message=diagnosis.explanation, data="")


async def _show(order: LaunchOrder, page: str, diagnosis: Diagnosis) -> None:
    """Put the page into the UI, under a key that is the same every night."""
    told = acreate_markdown_artifact(
        markdown=page,
        key=page_key(order.trial_id),
        description=f"{order.label}, attempt {order.number}: {diagnosis.mode}",
    )
    await if_possible(told)


@task(name="canary", task_run_name="canary {label}", cache_policy=NO_CACHE)
async def check_answers(
    label: str, base_url: str, canary: Canary, reference: tuple[Answer, ...] | None
) -> CanaryReport | State[CanaryReport]:
    """Ask the fixed prompts; answers that can't be right are a failed state."""
    report = judge(await ask(base_url, canary), reference, canary)
    if report.ok:
        return report
    return Failed(name="Incorrect", message=report.fault, data=report)
