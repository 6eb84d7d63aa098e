"""Launches of the real SGLang that fail on this machine's CPU: each is named as it is.

One after the other, since each imports torch for itself.
"""

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from settings.host import Host as HostSettings
from tasks.domain.configuration import Attempt, ServerConfiguration, Value
from tasks.domain.diagnosis import Doctor, Phase
from tasks.domain.facts import StackFacts, StackReport
from tasks.domain.progress import Progress
from tasks.failures.diagnosis import diagnosis_of
from tasks.failures.fatal import fatal_line
from tasks.failures.nodes import blame
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold, hold
from tasks.server.attempt import make_attempt
from tasks.server.death import serving
from tasks.server.launch import Patience, end_marked, log_at
from tasks.server.order import Launched, LaunchOrder
from tasks.server.site import Site
from tests.ports import free_port

PROJECT = Path(__file__).resolve().parents[2]
ROOT = (PROJECT / ".real-sglang").resolve()
DOCTOR = Doctor(blame, fatal_line, diagnosis_of)
CPU = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "max_total_tokens": 20000,
    "max_running_requests": 16,
}

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def definition() -> dict[str, object]:
    """The host with the real SGLang, which is installed where it isn't yet."""
    install = [sys.executable, str(PROJECT / "scripts/real_sglang/install.py"), "--json"]
    made = subprocess.run([*install, "--root", str(ROOT)], stdout=subprocess.PIPE, check=True)
    found: dict[str, object] = json.loads(made.stdout)
    return found


@dataclass
class Real:
    """The held host, and what was launched there."""

    held: Hold
    model: str
    marks: list[str]

    @property
    def host(self) -> Host:
        return self.held.host

    async def attempt(
        self, model: str = "", env: dict[str, str] | None = None, **args: Value
    ) -> Attempt:
        """Launch once and wait for what comes of it."""
        return (await self.launched(model, env, **args)).attempt

    async def launched(
        self, model: str = "", env: dict[str, str] | None = None, **args: Value
    ) -> Launched:
        """Do the same, and keep the server."""
        stack = self.host.settings.stacks[0]
        self.marks.append(f"real-{uuid.uuid4().hex[:8]}/")
        order = LaunchOrder(
            configuration=ServerConfiguration(model or self.model, {**CPU, **args}, env or {}),
            stack=StackReport("cpu", stack, "f", StackFacts(stack, "3.11", "linux", ()), ()),
            remedies=(),
            trial_id="t",
            number=1,
            repeat=1,
            mark=self.marks[-1],
            what=Progress("launch"),
        )
        site = Site(self.held, (), Patience(300, 200, 10))
        return await make_attempt(order, site, DOCTOR)

    async def await_log(self, text: bytes) -> None:
        """Wait until the launch that is under way has written something."""
        for _ in range(6000):
            if self.marks:
                folder = self.host.launch_folder(self.marks[-1])
                if text in await log_at(self.host, folder):
                    return
            await asyncio.sleep(0.05)
        pytest.fail(f"the log never said {text!r}")


@pytest.fixture
async def real(definition: dict[str, object], tmp_path: Path) -> AsyncIterator[Real]:
    settings = {name: value for name, value in definition.items() if name != "model_path"}
    settings |= {"run_folder": str(tmp_path / "run"), "port": free_port()}
    host_settings = HostSettings.model_validate(settings)
    async with (
        connect("cpu", host_settings) as host,
        hold(host, "test", "token", lease_s=60, wait_s=0) as held,
    ):
        real = Real(held, str(definition["model_path"]), [])
        yield real
        for mark in real.marks:
            await end_marked(held, mark, 5)


def cause(attempt: Attempt) -> tuple[str, str]:
    assert attempt.diagnosis is not None
    return attempt.diagnosis.mode, attempt.diagnosis.action.value


@pytest.mark.parametrize(
    ("model", "args", "expected"),
    [
        ("", {"no_such_flag": 1}, ("flag-unknown", "prune")),
        ("", {"schedule_policy": "shortest"}, ("flag-bad-choice", "prune")),
        ("/nowhere/at/all", {}, ("model-path-missing", "stop")),
        (
            "",
            {"max_total_tokens": None, "mem_fraction_static": 1e-12},
            ("kv-alloc-not-enough-memory", "retry"),
        ),
    ],
    ids=["unknown-flag", "bad-value", "model-path", "memory"],
)
async def test_what_it_refuses(
    real: Real, model: str, args: dict[str, Value], expected: tuple[str, str]
):
    assert cause(await real.attempt(model, **args)) == expected


async def test_a_kernel_package_that_needs_a_driver(real: Real, tmp_path: Path):
    """Whatever it is that loads libcuda, the loader's words are these."""
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    except OSError:
        pass
    needy = tmp_path / "sgl_kernel"
    needy.mkdir()
    program = 'import ctypes\ntry:\n    ctypes.CDLL("libcuda.so.1")\n'
    program += "except OSError as error:\n    raise ImportError(str(error)) from None\n"
    (needy / "__init__.py").write_text(program)
    assert cause(await real.attempt(env={"PYTHONPATH": str(tmp_path)})) == (
        "driver-not-visible",
        "stop",
    )


async def test_a_scheduler_that_is_killed_while_it_starts(real: Real):
    attempt = asyncio.create_task(real.attempt())
    await real.await_log(b"server_args=")
    await real.await_log(b"begin.")
    family = await real.host.ours(real.marks[-1])
    for process in family:
        if "scheduler" in process.name + process.command:
            os.kill(process.pid, signal.SIGKILL)
    mode, action = cause(await attempt)
    assert (mode, action) in {("host-oom-kill", "stop"), ("host-oom-kill", "prune")}


async def first_token(base_url: str) -> None:
    """Ask for a long answer and wait until it has begun; the stream is left open."""
    body = {"text": "Hello", "stream": True, "sampling_params": {"max_new_tokens": 3000}}
    async with (
        httpx.AsyncClient(timeout=60, trust_env=False) as client,
        client.stream("POST", f"{base_url}/generate", json=body) as answer,
    ):
        async for _ in answer.aiter_lines():
            return


async def test_a_scheduler_that_is_killed_under_load(real: Real):
    """The server itself goes on as if nothing were, and must not be waited for."""
    launch = (await real.launched()).launch
    server = await serving(launch)
    await first_token(launch.base_url)
    assert await server.alive()
    [scheduler] = [p for p in await real.host.ours(launch.mark) if "scheduler" in p.command]
    os.kill(scheduler.pid, signal.SIGKILL)
    ends = await server.ends(certain_s=2.0)
    assert ends is not None
    _, diagnosis = blame(ends)
    assert diagnosis is not None
    assert (diagnosis.mode, diagnosis.phase) == ("scheduler-died-silently", Phase.SERVING)

    process = json.loads(await real.host.read(f"{launch.folder}/process.json"))
    os.kill(process["pid"], signal.SIGKILL)
    ends = await server.ends(certain_s=10.0)
    assert ends is not None
    assert ends[0].exit_code == -signal.SIGKILL
    _, diagnosis = blame(ends)
    assert diagnosis is not None
    assert (diagnosis.mode, diagnosis.action.value) == ("scheduler-died-silently", "retry")


async def test_a_port_that_somebody_takes_meanwhile(real: Real):
    """It is free when it is chosen, and taken when SGLang binds it, a minute later."""
    attempt = asyncio.create_task(real.attempt())
    await real.await_log(b"server_args=")
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", real.host.settings.port))
        stranger.listen()
        assert cause(await attempt) == ("port-in-use-http", "retry")
