"""`sglang-sweep setup`: what the Prefect API must know before the nightly runs there.

Everything is created or brought up to date, so that it can be run again after any change.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings
from rich.console import Console
from rich.text import Text

from flows.exclusion import limit_of
from settings.application import Settings
from tasks.domain.errors import ExitStatus, InputError
from tasks.results.alerts import FINISHED, HOST_UNFIT, LAUNCH_FAILED, REGRESSION
from tasks.results.conclusion import ENDS

POOL = "gpu-hosts"
"""The work pool of prefect.yaml."""

LONGEST_SILENCE_S = 150
"""A run whose heartbeats stop for so long is taken for dead. The deployments of prefect.yaml have
them come every 30 s, whatever the worker's environment says; several may be lost."""

DIED = f"no heartbeat for {LONGEST_SILENCE_S} s: its worker or machine died"
_DURABLE = "prefect.server.concurrency.lease_storage.filesystem"
_ALERTS = {
    REGRESSION: "sglang-sweep: something got slower",
    HOST_UNFIT: "sglang-sweep: a host needs a person",
    LAUNCH_FAILED: "sglang-sweep: a failure cost trials",
    FINISHED: "sglang-sweep: a sweep has ended",
}


@dataclass(frozen=True, slots=True)
class Done:
    """What was done with one thing: created, updated or found as it should be."""

    what: str
    how: str


async def run_setup(settings: Settings, notify: str | None, every_sweep: bool, out: Console) -> int:
    """Set the configured API up and say what was done; warnings name what only a person can mend.

    `notify` is a notification block as `prefect block ls` names it: `slack-webhook/alerts`.
    Raises `InputError` where no API is configured, or there is no such block.
    """
    url = get_current_settings().api.url
    if not url:
        way_out = "prefect config set PREFECT_API_URL=http://HOST:4200/api"
        raise InputError("setup", [f"no Prefect API is configured; {way_out}"])
    try:
        async with get_client() as client:
            for done in [
                await _pool(client),
                *[each for host in settings.hosts for each in await _host(client, host)],
                await _zombies(client),
                *await _notifications(client, notify, every_sweep),
            ]:
                out.print(Text.assemble((f"{done.how:8}", "green"), " ", done.what))
            warnings = list(_warnings(await _server_settings(client), settings, notify))
    except httpx.HTTPError as error:
        raise InputError("setup", [f"the Prefect API at {url} does not answer: {error}"]) from error
    for warning in warnings:
        out.print(Text.assemble(("warning ", "yellow"), " ", warning), soft_wrap=True)
    return ExitStatus.OK


async def _pool(client: PrefectClient) -> Done:
    try:
        await client.read_work_pool(POOL)
    except ObjectNotFound:
        await client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        return Done(f"work pool {POOL}", "created")
    return Done(f"work pool {POOL}", "found")


async def _host(client: PrefectClient, host: str) -> list[Done]:
    """A queue of its own, and the limit that keeps two deployed sweeps off it."""
    try:
        await client.read_work_queue_by_name(host, work_pool_name=POOL)
        how = "found"
    except ObjectNotFound:
        await client.create_work_queue(
            host, concurrency_limit=1, work_pool_name=POOL, description=f"sweeps on {host}"
        )
        how = "created"
    limit = limit_of(host)
    try:
        kept = (await client.read_global_concurrency_limit_by_name(limit)).limit == 1
        limited = "found" if kept else "updated"
    except ObjectNotFound:
        limited = "created"
    await client.upsert_global_concurrency_limit_by_name(limit, 1)
    return [Done(f"work queue {POOL}/{host}", how), Done(f"concurrency limit {limit}", limited)]


async def _zombies(client: PrefectClient) -> Done:
    """Runs whose process died with its worker are marked crashed: heartbeats tell.

    Only runs of our own pool: those of other projects may have heartbeats that come more rarely.
    """
    heartbeat = "prefect.flow-run.heartbeat"
    return await _automation(
        client,
        AutomationCore(
            name="sglang-sweep: mark runs that died",
            description=f"A run on {POOL} whose heartbeats stop has died with its worker.",
            trigger=EventTrigger(
                after={heartbeat},
                expect={heartbeat, *(f"prefect.flow-run.{end}" for end in ENDS)},
                match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
                match_related=ResourceSpecification(
                    {"prefect.resource.role": "work-pool", "prefect.resource.name": POOL}
                ),
                for_each={"prefect.resource.id"},
                posture=Posture.Proactive,
                threshold=1,
                within=timedelta(seconds=LONGEST_SILENCE_S),
            ),
            actions=[ChangeFlowRunState(state=StateType.CRASHED, message=DIED)],
        ),
    )


async def _notifications(
    client: PrefectClient, notify: str | None, every_sweep: bool
) -> list[Done]:
    """One automation an alert, which sends its text through the block."""
    if notify is None:
        return []
    kind, _, name = notify.partition("/")
    try:
        block = await client.read_block_document_by_name(name, kind)
    except ObjectNotFound as error:
        fault = f"--notify: there is no block {notify!r}; `prefect block ls` shows those there are"
        raise InputError("setup", [fault]) from error
    wanted = {event: name for event, name in _ALERTS.items() if every_sweep or event != FINISHED}
    return [
        await _automation(
            client,
            AutomationCore(
                name=name,
                description=f"Sends the text of {event} through {notify}.",
                trigger=EventTrigger(
                    expect={event},
                    match=ResourceSpecification({"prefect.resource.id": ["sglang-sweep.host.*"]}),
                    posture=Posture.Reactive,
                    threshold=1,
                    within=timedelta(0),
                ),
                actions=[
                    SendNotification(
                        block_document_id=block.id,
                        subject=f"{name}: {{{{ event.resource.name }}}}",
                        body="{{ event.payload.text }}",
                    )
                ],
            ),
        )
        for event, name in wanted.items()
    ]


async def _automation(client: PrefectClient, wanted: AutomationCore) -> Done:
    """Create an automation, or bring the one of that name up to date."""
    what = f"automation {wanted.name!r}"
    there = await client.read_automations_by_name(wanted.name)
    if not there:
        await client.create_automation(wanted)
        return Done(what, "created")
    for double in there[1:]:
        await client.delete_automation(double.id)
    # As Python's own types: sets have no order, and their JSON has one.
    if there[0].model_dump(include=set(AutomationCore.model_fields)) == wanted.model_dump():
        return Done(what, "found")
    await client.update_automation(there[0].id, wanted)
    return Done(what, "updated")


async def _server_settings(client: PrefectClient) -> dict[str, Any]:
    """The API's own settings; empty where it doesn't tell them (Prefect Cloud)."""
    try:
        answer: dict[str, Any] = (await client.request("GET", "/admin/settings")).json()
    except httpx.HTTPStatusError:
        return {}
    return answer


def _warnings(server: dict[str, Any], settings: Settings, notify: str | None) -> Iterator[str]:
    """What is not as it should be, each with its way out."""
    inner = server.get("server", {})
    storage = inner.get("concurrency", {}).get("lease_storage", _DURABLE)
    if storage != _DURABLE:
        yield (
            f"the API keeps concurrency leases in {storage.rpartition('.')[2]}: after its restart "
            "a host's slot stays taken until the lease ends; start it with "
            f"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE={_DURABLE}"
        )
    if not settings.hosts:
        yield "the settings name no host: a [hosts.NAME] table in sglang-sweep.toml defines one"
    if notify is None:
        yield _NOBODY_TOLD


_NOBODY_TOLD = (
    "nobody is told of a regression or a host that needs a person; make a notification block "
    "(Slack, e-mail, webhook) in the UI under Blocks, and name it: setup --notify KIND/NAME"
)
