"""A Prefect API of our own for a run from the command line, where none is configured.

Prefect's own temporary server lives in the terminal's process group: Ctrl-C ends it before the
flow has cleaned up, and the flow then waits for it. This one has a session of its own and ends
with us, however we end.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tasks.domain.errors import SweepError

PR_SET_PDEATHSIG = 1
_START_S = 300.0
"""The first start makes the database, which takes half a minute of CPU."""
_ONLY_KEEPS_BOOKS = {
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in (
        "SCHEDULER",
        "LATE_RUNS",
        "FOREMAN",
        "PAUSE_EXPIRATIONS",
        "CANCELLATION_CLEANUP",
        "TRIGGERS",
        "EVENT_LOGGER",
    )
}
"""A server of ours records runs for whoever looks later; it begins and judges none."""

_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
}


class ApiUnavailable(SweepError):
    """The Prefect API did not come up, or the configured one does not answer."""


@asynccontextmanager
async def prefect_api(home: str | None = None) -> AsyncIterator[str]:
    """Use the Prefect API that is configured, or run one until the end; gives its URL.

    `home` keeps an own server's database apart from the user's. Call this before Prefect is
    imported: it is configured through the environment.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if home is None and (configured := _configured()):
        await _must_answer(configured)
        yield configured
        return
    if home is not None:
        os.environ["PREFECT_HOME"] = home
        os.environ["PREFECT_PROFILES_PATH"] = os.path.join(home, "profiles.toml")
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    server = _start(port, url)
    try:
        await _until_healthy(server, url)
        os.environ["PREFECT_API_URL"] = url
        _read_settings_anew()
        yield url
    finally:
        await asyncio.shield(_flush())
        _end(server)


def _read_settings_anew() -> None:
    """Have Prefect see the variables that we set: asking what is configured froze its settings."""
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()


async def _flush() -> None:
    """Send what Prefect still has to say: task runs are kept by their events."""
    if "prefect.flows" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(APILogHandler.aflush(), 5.0)
        await asyncio.wait_for(asyncio.to_thread(EventsWorker.drain_all, 5.0), 6.0)


def _configured() -> str | None:
    """The API that the user's environment or profile names."""
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    return str(url) if url else None


async def _must_answer(url: str) -> None:
    """Raise `ApiUnavailable` where nobody answers there: better now than after the first trial."""
    try:
        async with httpx.AsyncClient(timeout=10.0) as client:
            (await client.get(f"{url}/health")).raise_for_status()
    except httpx.HTTPError as error:
        raise ApiUnavailable(
            f"the Prefect API at {url} does not answer ({error}); start it, or unset "
            "PREFECT_API_URL (or choose another profile) to run with one of our own"
        ) from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(port: int, url: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "prefect", "server", "start"]
    return subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        env={
            **os.environ,
            **_ONLY_KEEPS_BOOKS,
            "PREFECT_UI_API_URL": url,
            "PREFECT_API_URL": "",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


async def _until_healthy(server: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + _START_S
    async with httpx.AsyncClient(timeout=2.0) as client:
        while time.monotonic() < deadline and server.poll() is None:
            try:
                if (await client.get(f"{url}/health")).is_success:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)
    raise ApiUnavailable(
        f"Prefect's own server did not start (exit status {server.poll()}); "
        "`prefect server start` shows why, or set PREFECT_API_URL to a server that runs"
    )


def _end(server: "subprocess.Popen[bytes]") -> None:
    """End the server with everything in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(5.0)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return
