"""What is told to onlookers must never cost the work itself."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import httpx

from tasks.domain.progress import Progress, report

_T = TypeVar("_T")

LONGEST_S = 20.0
"""More than any page takes to store; an API that has gone isn't waited for."""


async def if_possible(telling: Awaitable[_T]) -> _T | None:
    """Await a page or a note for people; None, and a line in its stead, where nobody takes it."""
    try:
        async with asyncio.timeout(LONGEST_S):
            return await telling
    except (httpx.HTTPError, OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        report(
            Progress("report", message=f"[yellow]a page in Prefect's UI is missing[/]: {reason}")
        )
        return None
