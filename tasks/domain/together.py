"""Do the same on several hosts at once, each to its end."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

_T = TypeVar("_T")


async def together(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await everything, in spite of failures; then raise the first, or give the results in order.

    What ends a server must not be skipped on one host because another one can't be reached.
    """
    done = await asyncio.gather(*work, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if not isinstance(one, BaseException)]
