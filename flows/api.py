"""Prefect's API may go away for a while: that costs pages in its UI, never a measurement."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
from prefect.client.orchestration import get_client
from prefect.runtime import deployment

from tasks.domain.progress import Progress, report

_T = TypeVar("_T")

_ANSWER_S = 5.0
_LOOK_S = 2.0

PATIENCE_S = 900.0
"""How long a run that a worker started waits at its end for an API that has gone."""

PATIENCE_OF_A_PERSON_S = 5.0
"""Likewise where somebody sits before it: all that is missing is the end in Prefect's UI."""


async def api_answers() -> bool:
    """Whether the API that this run reports to answers now."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            client = get_client(httpx_settings={"timeout": _ANSWER_S})
            return await client.api_healthcheck() is None
    except (TimeoutError, OSError, httpx.HTTPError):
        return False


async def shown_or_bare(
    shown: Callable[[], Awaitable[_T]],
    bare: Callable[[], Awaitable[_T]],
    known: Callable[[], _T | None],
) -> _T:
    """Run something as a flow of its own, or without Prefect's knowing while its API is away.

    `known` gives the outcome where the work was done and only Prefect couldn't be told.
    """
    if await api_answers():
        try:
            return await shown()
        except httpx.HTTPError as error:
            outcome = known()
            if outcome is not None:
                return outcome
            reason = str(error) or type(error).__name__
            text = f"[yellow]the Prefect API went away[/] ({reason}): the sweep goes on without it"
            report(Progress("trial", message=text))
    return await bare()


async def until_api_answers() -> None:
    """Wait for the API so that the end can be told; the host has been given back by now."""
    patience_s = PATIENCE_S if deployment.id else PATIENCE_OF_A_PERSON_S
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while not await api_answers():  # noqa: ASYNC110 - nobody tells when it is back
                await asyncio.sleep(_LOOK_S)
