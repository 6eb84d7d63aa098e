"""The server's steps as Prefect tasks."""

from prefect import task
from prefect.artifacts import acreate_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Failed

from settings.sweep import Canary
from tasks.domain.answer import Answer
from tasks.domain.configuration import Attempt
from tasks.domain.diagnosis import Diagnosis, Doctor
from tasks.domain.page import Page
from tasks.domain.telling import if_possible
from tasks.server.attempt import make_attempt
from tasks.server.canary import CanaryReport, ask, judge
from tasks.server.order import Launched, LaunchOrder
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
    launched = await make_attempt(order, site, doctor)
    diagnosis = launched.attempt.diagnosis
    if diagnosis is None:
        return launched
    await _show(order, await page(launched.attempt, launched.log), diagnosis)
    name = f"LaunchFailed: {diagnosis.mode}"
    return Failed(name=name, message=diagnosis.explanation, data=launched)


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
        key=f"launch-failed-{order.trial_id}",
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
