"""Have Prefect's state of a run tell the truth where Prefect can't know it by itself."""

from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Crashed, Running


async def say_alive() -> None:
    """Take back that this run has crashed: it was only not heard while the API was away."""
    if flow_run.id is None:
        return
    try:
        async with get_client() as client:
            state = (await client.read_flow_run(UUID(flow_run.id))).state
            if state is not None and state.type is StateType.CRASHED:
                lives: State[None] = Running(message=f"it lives; taken for dead: {state.message}")
                await client.set_flow_run_state(UUID(flow_run.id), lives, force=True)
    except (httpx.HTTPError, ObjectNotFound):
        return


async def say_dead(run_id: str, reason: str) -> None:
    """Mark a run whose process was killed as crashed, and the trials that it was at.

    A run that is not known to this API is none of its business.
    """
    try:
        async with get_client() as client:
            parent = FlowRunFilterParentFlowRunId(any_=[UUID(run_id)])
            trials = await client.read_flow_runs(
                flow_run_filter=FlowRunFilter(parent_flow_run_id=parent)
            )
            for run in (*trials, await client.read_flow_run(UUID(run_id))):
                if run.state is None or not run.state.is_final():
                    await client.set_flow_run_state(run.id, Crashed(message=reason), force=True)
    except (httpx.HTTPError, ObjectNotFound, ValueError):
        return
