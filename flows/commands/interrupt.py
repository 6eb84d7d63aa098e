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


def run_interruptible(work: Coroutine[Any, Any, _T], gently: asyncio.Event | None = None) -> _T:
    """Run to the end. Raises `KeyboardInterrupt` once an interrupted work has cleaned up.

    SIGTERM and SIGHUP are treated alike: a service manager's stop and a lost terminal clean up
    too. `gently` is set by the first press instead of the cancellation, where it is given.
    """
    try:
        return asyncio.run(_cancelled_by_signals(work, gently))
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error
    except BaseException as error:
        if _is_termination(error):
            raise KeyboardInterrupt from error
        raise


def _is_termination(error: BaseException) -> bool:
    """Whether Prefect, which takes SIGTERM over while a flow runs, has made it an exception."""
    if "prefect" not in sys.modules:
        return False
    from prefect.exceptions import TerminationSignal

    return isinstance(error, TerminationSignal)


async def _cancelled_by_signals(work: Coroutine[Any, Any, _T], gently: asyncio.Event | None) -> _T:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses == 1 and gently is not None:
            gently.set()
        elif presses == 1 + (gently is not None) and task is not None:
            task.cancel()
        elif presses < _PATIENCE:
            sys.stderr.write("still cleaning up; once more leaves the server to its lease\n")
        else:
            os._exit(ExitStatus.INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, pressed)
    return await work
