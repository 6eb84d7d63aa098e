"""Ctrl-C: the first press cancels the work, which cleans up; impatience doesn't break that."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from tasks.domain.errors import ExitStatus

_T = TypeVar("_T")

_PATIENCE = 3
"""Presses after which we leave at once; the host's supervisor then ends the server."""


def run_interruptible(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end. Raises `KeyboardInterrupt` once an interrupted work has cleaned up.

    SIGTERM is treated alike, so that a service manager's stop cleans up too.
    """
    try:
        return asyncio.run(_cancelled_by_signals(work))
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


async def _cancelled_by_signals(work: Coroutine[Any, Any, _T]) -> _T:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses == 1 and task is not None:
            task.cancel()
        elif presses < _PATIENCE:
            sys.stderr.write("still cleaning up; once more leaves the server to its lease\n")
        else:
            os._exit(ExitStatus.INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, pressed)
    return await work
