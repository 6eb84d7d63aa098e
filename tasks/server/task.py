"""The server's steps as Prefect tasks."""

from prefect import task
from prefect.artifacts import acreate_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Failed

from settings.sweep import Canary
from tasks.domain.answer import Answer
from tasks.domain.diagnosis import Doctor
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
    told = acreate_markdown_artifact(
        markdown=page(launched.attempt),
        key=f"launch-failed-{order.trial_id}",
        description=f"{order.label}, attempt {order.number}: {diagnosis.mode}",
    )
    await if_possible(told)
    name = f"LaunchFailed: {diagnosis.mode}"
    return Failed(name=name, message=diagnosis.explanation, data=launched)


@task(name="canary", task_run_name="canary {label}", cache_policy=NO_CACHE)
async def check_answers(
    label: str, base_url: str, canary: Canary, reference: tuple[Answer, ...] | None
) -> CanaryReport | State[CanaryReport]:
    """Ask the fixed prompts; answers that can't be right are a failed state."""
    report = judge(await ask(base_url, canary), reference, canary)
    if report.ok:
        return report
    return Failed(name="Incorrect", message=report.fault, data=report)
