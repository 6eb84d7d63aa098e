"""What still has to be done for a run that could not do it itself.

Prefect calls these hooks by these parameter names; after a kill in another process, which knows
nothing but the run.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging import get_logger

from flows.truth import say_dead
from settings.application import load
from settings.host import Host
from settings.invalid import InvalidSettings
from settings.nodes import hosts_of
from tasks.domain.errors import SweepError
from tasks.domain.together import together
from tasks.hosts.connect import connect
from tasks.hosts.lock import give_back
from tasks.results.folders import SweepFolder
from tasks.results.records import SweepRecord, SweepState
from tasks.results.store import set_state, sweep_of


async def end_crashed(flow: Flow[Any, Any], flow_run: FlowRun, state: State[Any]) -> None:
    """End the server of a run whose process is gone, free the host, and say so in the store."""
    reason = state.message or "crashed"
    await _end(str(flow_run.id), SweepState.CRASHED, reason, unlock=True)
    await say_dead(str(flow_run.id), reason)


async def end_cancelled(flow: Flow[Any, Any], flow_run: FlowRun, state: State[Any]) -> None:
    """End what a cancelled run may have left.

    Its lock isn't touched: `Cancelled` is no proof that its process has ended.
    """
    await _end(str(flow_run.id), SweepState.CANCELLED, "cancelled", unlock=False)


async def _end(flow_run: str, state: SweepState, reason: str, *, unlock: bool) -> None:
    try:
        settings, _ = load()
        record = await asyncio.to_thread(sweep_of, Path(settings.store), flow_run)
        if record is None:
            return
        if record.state is SweepState.RUNNING:
            folder = SweepFolder(Path(settings.store), record.sweep_id)
            set_state(folder, state, now=time.time(), reason=reason)
        hosts = hosts_of(settings, record.sweep)
        await together(
            _end_on(name, host, record, flow_run if unlock else "") for name, host in hosts.items()
        )
    except (SweepError, InvalidSettings) as error:
        get_logger().error("nothing could be ended for flow run %s: %s", flow_run, error)


async def _end_on(name: str, settings: Host, record: SweepRecord, token: str) -> None:
    """End what runs on one host, and give its lock back where the token is told."""
    async with connect(name, settings) as host:
        ended = (await host.stop(f"{record.sweep_id}/", record.sweep.timeouts.stop_grace)).ended
        if token:
            await give_back(host, token)
    if ended:
        text = "sweep %s: ended %d processes on %s"
        get_logger().info(text, record.sweep_id, len(ended), name)
