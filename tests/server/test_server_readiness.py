"""Whether a real process serves: it, its log, its port and its answers must agree."""

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import httpx
import pytest

from tasks.domain.diagnosis import Phase
from tasks.domain.progress import listener
from tasks.failures.fatal import fatal_line
from tasks.server.http import complete, facts, generates
from tasks.server.launch import Patience, end_marked
from tasks.server.readiness import NotReady, Ready, await_ready
from tasks.server.signs import Signs
from tests.ports import free_port
from tests.server.conftest import WHAT, Bed, fault

SAYS_READY = (
    "import sys, time; print('The server is fired up and ready to roll!', flush=True); "
    "time.sleep(1000)"
)


def supervisors(folder: str) -> list[int]:
    """The programs that watch over the server of a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"supervise" in words and folder.encode() in words:
            found.append(int(path.parent.name))
    return found


async def test_a_healthy_server_is_ready_and_ends_without_a_trace(bed: Bed):
    launch = await bed.launch()
    ready = await bed.ready(launch)
    assert isinstance(ready, Ready)
    assert 0 < ready.ready_s < 20
    assert (await complete(launch.base_url, "Hello", 8, 10)).token_ids
    assert (await facts(launch.base_url))["model_path"] == bed.model
    ended = await end_marked(bed.hold, launch.mark, 5)
    assert len(ended.ended) == 10  # the server, eight schedulers, the detokenizer
    assert await bed.host.ours(launch.mark) == []
    assert not await generates(launch.base_url, 1)
    again = await end_marked(bed.hold, launch.mark, 5)
    assert again.ended == ()


async def test_a_server_that_dies_is_known_at_once(bed: Bed):
    launch = await bed.launch(fault("oom-graph-capture"))
    began = time.monotonic()
    outcome = await bed.ready(launch)
    assert time.monotonic() - began < 10
    assert isinstance(outcome, NotReady)
    assert (outcome.exit_code, outcome.phase) == (-9, Phase.GRAPH_CAPTURE)
    assert (outcome.reason, outcome.stalled) == ("the process ended with exit status -9", False)
    assert "Capture cuda graph failed: CUDA out of memory" in outcome.log


async def test_a_server_that_is_killed_without_a_word(bed: Bed):
    outcome = await bed.ready(await bed.launch(fault("silent-kill")))
    assert isinstance(outcome, NotReady)
    assert (outcome.exit_code, outcome.phase, outcome.stalled) == (-9, Phase.WEIGHTS, False)


async def test_an_end_that_nobody_saw(bed: Bed):
    """The supervisor, who records the exit status, is gone as well."""
    launch = await bed.launch(fault("nccl-hang"))
    await bed.await_log(launch, b"distributed begin")
    for pid in (*supervisors(launch.folder), *(p.pid for p in await bed.host.ours(launch.mark))):
        os.kill(pid, signal.SIGKILL)
    outcome = await bed.ready(launch)
    assert isinstance(outcome, NotReady)
    assert outcome.reason == "the process ended, and nobody saw its exit status"
    assert (outcome.exit_code, outcome.stalled) == (None, False)


async def test_a_flag_that_nobody_knows(bed: Bed):
    outcome = await bed.ready(await bed.launch(no_such_flag=1))
    assert isinstance(outcome, NotReady)
    assert (outcome.exit_code, outcome.phase) == (2, Phase.START)
    assert "error: unrecognized arguments: --no-such-flag 1" in outcome.log


async def test_a_server_that_hangs_gives_no_sign_of_life(bed: Bed):
    outcome = await bed.ready(await bed.launch(fault("nccl-hang")), stall_s=1.0)
    assert isinstance(outcome, NotReady)
    assert (outcome.exit_code, outcome.phase) == (None, Phase.DISTRIBUTED)
    assert (outcome.reason, outcome.stalled) == ("no sign of life for 1 s", True)
    assert await bed.host.ours(bed.marks[-1])


async def test_a_server_that_is_slow_but_alive_has_until_the_end(bed: Bed):
    program = "import time\nwhile True: print('Load weight begin.', flush=True); time.sleep(0.1)"
    outcome = await bed.ready(await bed.launch(program=program), ready_s=1.5, stall_s=1.0)
    assert isinstance(outcome, NotReady)
    assert (outcome.exit_code, outcome.phase) == (None, Phase.WEIGHTS)
    assert outcome.reason == "not ready within 2 s"


async def test_work_without_a_word_is_a_sign_of_life(bed: Bed):
    program = "import time\nwhile True: pass"
    outcome = await bed.ready(await bed.launch(program=program), ready_s=2.5, stall_s=1.0)
    assert isinstance(outcome, NotReady)
    assert outcome.reason == "not ready within 2 s"


async def test_health_alone_is_not_enough(bed: Bed):
    launch = await bed.launch(fault("health-early", seconds=3))
    await bed.await_log(launch, b"fired up")
    told = time.monotonic()
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{launch.base_url}/health")).is_success
    assert isinstance(await bed.ready(launch), Ready)
    assert time.monotonic() - told > 1.0


async def test_a_server_that_refuses_to_generate_is_never_ready(bed: Bed):
    launch = await bed.launch(fault("health-early", seconds=60, mode="refuse"))
    outcome = await bed.ready(launch, ready_s=2.0)
    assert isinstance(outcome, NotReady)
    assert (outcome.phase, outcome.reason) == (Phase.SERVING, "not ready within 2 s")


async def test_a_stranger_on_the_port_is_not_taken_for_ours(bed: Bed):
    outcome = await bed.ready(await bed.launch(fault("port-taken")))
    assert isinstance(outcome, NotReady)
    assert outcome.exit_code == 3
    assert "The server is fired up and ready to roll!" in outcome.log
    assert "address already in use" in outcome.log


async def test_a_stranger_that_serves_on_the_port_of_a_server_that_lives_on(bed: Bed):
    port = free_port()
    stranger = await bed.launch(port=port)
    assert isinstance(await bed.ready(stranger), Ready)
    ours = await bed.launch(port=port, program=SAYS_READY)
    assert await generates(ours.base_url, 5)
    outcome = await bed.ready(ours)
    assert isinstance(outcome, NotReady)
    assert (outcome.reason, outcome.exit_code) == ("another server holds the port", None)
    assert (outcome.stalled, outcome.port_stolen) == (False, True)


async def test_a_fatal_line_of_a_process_that_lives_on(bed: Bed):
    program = SAYS_READY.replace(
        "The server is fired up and ready to roll!", "Scheduler hit an exception: Traceback"
    )
    outcome = await bed.ready(await bed.launch(program=program), stall_s=30)
    assert isinstance(outcome, NotReady)
    assert (outcome.reason, outcome.stalled) == ("the log holds a fatal error", False)


async def test_a_worker_that_dies_alone_is_known_at_once(bed: Bed):
    launch = await bed.launch(fault("nccl-hang"))
    await bed.await_log(launch, b"distributed begin")
    waiting = asyncio.create_task(bed.ready(launch, stall_s=30))
    await asyncio.sleep(1.0)
    family = await bed.host.ours(launch.mark)
    [server] = [one for one in family if not one.name.startswith("sglang::")]
    [rank] = [one for one in family if one.command.startswith("sglang::scheduler_TP3")]
    os.kill(server.pid, signal.SIGSTOP)  # so that it can't see what happens
    os.kill(rank.pid, signal.SIGKILL)
    outcome = await waiting
    assert isinstance(outcome, NotReady)
    assert outcome.reason == f"sglang::schedul (pid {rank.pid}) ended while the server went on"
    assert (outcome.child_lost, outcome.stalled) == (True, False)


async def test_a_launch_that_only_spins_is_not_waited_on(bed: Bed):
    """CPU time is believed four times as long as silence, and a compiler as long as it runs."""
    spinning = "while True: pass"
    outcome = await bed.ready(await bed.launch(program=spinning), ready_s=20, stall_s=0.5)
    assert isinstance(outcome, NotReady)
    assert outcome.reason == "busy for 2 s, without a line or more GPU memory"
    building = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, b'cicc', 0, 0, 0); time.sleep(1000)"
    )
    outcome = await bed.ready(await bed.launch(program=building), ready_s=3, stall_s=0.5)
    assert isinstance(outcome, NotReady)
    assert outcome.reason == "not ready within 3 s"


async def test_memory_that_is_taken_is_a_sign_of_life(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tasks.server.signs._QUIET_S", 0.0)
    monkeypatch.setattr("tasks.server.signs._ASK_MEMORY_S", 0.0)
    [signs], patience = Signs.of_all(1), Patience(60, 0.3, 2)
    signs.life = signs.progress = signs.progress - 1
    await signs.feel_memory(bed.host, patience)
    assert signs.memory_mib is not None
    silent_since = signs.progress
    launch = await bed.launch()
    assert isinstance(await bed.ready(launch), Ready)
    await signs.feel_memory(bed.host, patience)
    assert signs.progress > silent_since
    silent_since = signs.progress
    await signs.feel_memory(bed.host, patience)
    assert signs.progress == silent_since


async def test_an_estimate_is_shown_while_it_lasts(bed: Bed):
    told: list[str] = []
    token = listener.set(lambda progress: told.append(progress.detail))
    launch = await bed.launch()
    patience = Patience(20, 10, 2)
    ready = await await_ready(launch, patience, fatal_line, WHAT, expected_s=1000.0)
    listener.reset(token)
    assert isinstance(ready, Ready)
    assert re.fullmatch(r"start, about (?:1000|99\d) s left", told[0])


@pytest.mark.parametrize("after_s", [0.0, 0.5])
async def test_a_wait_that_is_cancelled_leaves_a_server_that_its_caller_can_end(
    bed: Bed, after_s: float
):
    launch = await bed.launch(fault("nccl-hang"))
    waiting = asyncio.create_task(bed.ready(launch))
    await asyncio.sleep(after_s)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await end_marked(bed.hold, launch.mark, 0.2)
    assert await bed.host.ours(launch.mark) == []
    assert await bed.host.holders() == []
    assert bed.hold.folders == set()


async def test_a_child_that_outlives_its_server_is_ended_with_it(bed: Bed):
    launch = await bed.launch(fault("leaky-child"))
    assert isinstance(await bed.ready(launch), Ready)
    ended = await end_marked(bed.hold, launch.mark, 1)
    assert len(ended.ended) == 11
    assert ended.left == ()
    assert await bed.host.holders() == []


async def test_answers_that_are_none_are_errors(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    """And a proxy that the environment names has no part in it."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    answer = await complete(f"http://127.0.0.1:{free_port()}", "Hello", 8, 5)
    assert answer.error.startswith("ConnectError")
    launch = await bed.launch(fault("garbage"))
    assert isinstance(await bed.ready(launch), Ready)
    long = await complete(launch.base_url, "Hello", 10**9, 5)
    assert long.error.startswith("HTTP 400")
    lost = await complete(f"{launch.base_url}/nowhere", "Hello", 8, 5)
    assert lost.error.startswith("HTTP 404")
    list_instead = await complete(f"{launch.base_url}/v1/models?", "Hello", 8, 5)
    assert list_instead.error
