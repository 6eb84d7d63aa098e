"""The demo's sweep as a deployment: a whole night on a simulated host, in five minutes."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from prefect import Flow, flow, get_run_logger
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Failed

from flows.ends import end_cancelled, end_crashed
from flows.simulated import demo_sweep, prepare
from flows.sweep import run_on_host
from flows.telling import log_messages
from settings.application import CONFIG_VARIABLE, load
from tasks.domain.errors import InputError
from tasks.results.conclusion import WRONG_INPUT


def _run_name() -> str:
    return f"demo simulated {time.strftime('%Y-%m-%d %H:%M', time.gmtime())}"


def _use_settings_of(flow_run: FlowRun) -> None:
    """Look for the host where the run had it: this may be another process, after a kill."""
    folder = flow_run.parameters.get("folder", _FOLDER)
    os.environ[CONFIG_VARIABLE] = str(Path(folder).resolve() / "sglang-sweep.toml")


async def _end_crashed(flow: Flow[Any, Any], flow_run: FlowRun, state: State[Any]) -> None:
    _use_settings_of(flow_run)
    await end_crashed(flow, flow_run, state)


async def _end_cancelled(flow: Flow[Any, Any], flow_run: FlowRun, state: State[Any]) -> None:
    _use_settings_of(flow_run)
    await end_cancelled(flow, flow_run, state)


_FOLDER = ".demo"


@flow(
    name="sweep",
    flow_run_name=_run_name,
    on_crashed=[_end_crashed],
    on_cancellation=[_end_cancelled],
)
async def demo(folder: str = _FOLDER) -> State[str]:
    """Run the demo's sweep on the simulated host: cures, prunes, refuses and measures.

    Args:
        folder: Where the simulated host and the results are kept, on the worker.
    """
    log_messages(get_run_logger())
    try:
        where = await asyncio.to_thread(_made, folder)
    except (InputError, OSError) as error:
        return Failed(name=WRONG_INPUT, message=str(error), data="")
    settings, _ = load()
    return await run_on_host(settings, demo_sweep(where))


def _made(folder: str) -> Path:
    """Make the simulated host in a folder and put its settings in force."""
    where = Path(folder).resolve()
    os.environ[CONFIG_VARIABLE] = str(prepare(where))
    return where
