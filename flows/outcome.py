"""What a task brought, whether its state is a success or a failure that explains itself."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, cast

from prefect.client.schemas.objects import State

_T = TypeVar("_T")

Drawn = list[State[Any]]
"""The task before, on which the next one is said to wait: Prefect's graph has an arrow there."""


async def outcome_of(run: object, kind: type[_T], drawn: Drawn | None = None) -> _T:
    """Await a task run that was asked for its state, and give the state's data.

    An expected failure (`LaunchFailed: …`, `Incorrect`) carries data too; an exception is raised
    as it was. With `drawn`, the task that waits for it next is drawn behind this one.
    """
    state = await cast("Awaitable[State[Any]]", run)
    # Prefect doesn't start what waits for a failure.
    if drawn is not None and state.is_completed():
        drawn[:] = [state]
    return await data_of(state, kind)


async def data_of(state: State[Any], kind: type[_T]) -> _T:
    """The data of a state, raising the exception that it may hold instead."""
    data = await state.aresult(raise_on_failure=False)
    if isinstance(data, BaseException):
        raise data
    if not isinstance(data, kind):
        raise TypeError(f"expected {kind.__name__} from {state.name}, got {type(data).__name__}")
    return data


async def to_the_end(work: Coroutine[None, None, None]) -> None:
    """Await what must not be skipped; a cancellation meanwhile is passed on only afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
