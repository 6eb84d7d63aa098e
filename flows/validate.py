"""The software stacks of one host: facts, findings, and whether they can serve."""

from prefect import flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from settings.application import load
from settings.invalid import InvalidSettings
from tasks.domain.facts import StackReport
from tasks.hosts.connect import connect
from tasks.results.conclusion import NEEDS_PERSON, WRONG_INPUT
from tasks.stack.page import findings_markdown
from tasks.stack.task import validate_stacks


@flow(name="validate", flow_run_name="validate {host}")
async def validate(host: str = "local") -> State[list[StackReport]]:
    """Judge every software stack that a host lists, launching nothing.

    Args:
        host: A host of the settings; `local` always exists.
    """
    try:
        settings, _ = load()
        async with connect(host, settings.host(host)) as reached:
            reports = await validate_stacks([reached], None)
    except InvalidSettings as error:
        return Failed(name=WRONG_INPUT, message=str(error), data=[])
    await acreate_markdown_artifact(
        findings_markdown(reports), key="validation", description=f"stacks of {host}"
    )
    fit = [each.stack for each in reports if each.fit]
    if fit:
        return Completed(message=f"{fit[0]} can serve", data=reports)
    return Failed(name=NEEDS_PERSON, message=f"no stack of {host} can serve", data=reports)
