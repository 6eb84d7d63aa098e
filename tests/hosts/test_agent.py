"""The agent's questions about processes, files and ports, asked of real ones."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.hosts.host import MARK, Host
from tasks.hosts.transport import LocalTransport
from tests.hosts.processes import IGNORING, alive, oldest_python, pid_in, running

HOLD = "import sys, time; files = [open(path) for path in sys.argv[1:]]; print('there')\n"
SLEEP = "import time; print('there'); time.sleep(1000)"


async def test_who_and_where(host: Host) -> None:
    assert host.identity.uid == os.getuid()
    assert host.identity.ancestors[0] == os.getpid()
    assert os.getppid() in host.identity.ancestors


async def test_holders_are_named_with_what_they_hold(host: Host, tmp_path: Path) -> None:
    device = tmp_path / "dev" / "nvidia0"
    with running(HOLD + "time.sleep(1000)", device, "/dev/null") as process:
        (holder,) = await host.holders()
    assert (holder.pid, holder.devices, holder.mark) == (process.pid, (str(device),), None)
    assert holder.uid == os.getuid()
    assert "time.sleep(1000)" in holder.command
    assert holder.age_s < 60
    assert await host.holders() == []


async def test_a_holder_that_ends_while_it_is_looked_at_is_no_error(
    host: Host, tmp_path: Path
) -> None:
    device = tmp_path / "dev" / "nvidia0"
    brief = f"exec 3< {device}; sleep 0.03"
    stop = asyncio.Event()

    async def keep_starting() -> None:
        while not stop.is_set():
            process = await asyncio.create_subprocess_exec("sh", "-c", brief)
            await process.wait()

    starters = [asyncio.create_task(keep_starting()) for _ in range(2)]
    for _ in range(15):
        await host.holders()
    stop.set()
    await asyncio.gather(*starters)


async def test_occupants_are_holders_and_what_was_launched_from_here(
    host: Host, tmp_path: Path
) -> None:
    mark = f"test{tmp_path}/"
    env = {**os.environ, MARK: mark}
    device = tmp_path / "dev" / "nvidia1"
    with running(HOLD + "time.sleep(1000)", device) as holder, running(SLEEP, env=env) as ours:
        assert [process.pid for process in await host.occupants()] == [holder.pid]
        os.makedirs(host.launch_folder(mark))
        seen = {process.pid: process for process in await host.occupants()}
        assert (seen[ours.pid].launched_here, seen[holder.pid].launched_here) == (True, False)
        assert seen[holder.pid].devices == (str(device),)
        assert (seen[ours.pid].mark, seen[ours.pid].devices) == (mark, ())
        assert [process.pid for process in await host.ours(mark[:-1])] == [ours.pid]
        assert await host.ours(f"{mark}other") == []


async def test_kill_spares_a_process_that_took_over_the_pid(host: Host, tmp_path: Path) -> None:
    device = tmp_path / "dev" / "nvidia0"
    with running(HOLD + "time.sleep(1000)", device) as process:
        (holder,) = await host.holders()
        earlier = type(holder)(**{**_fields(holder), "start_ticks": holder.start_ticks - 1})
        outcome = await host.kill([earlier], grace_s=0.1)
        assert (outcome.ended, outcome.left) == ((), ())
        assert alive(process.pid)
        outcome = await host.kill([holder], grace_s=5)
        assert [ended.pid for ended in outcome.ended] == [process.pid]
        assert process.wait(5) == -15


async def test_who_ignores_sigterm_is_killed_after_the_grace(host: Host, tmp_path: Path) -> None:
    device = tmp_path / "dev" / "nvidia0"
    with running(IGNORING + HOLD + "time.sleep(1000)", device) as process:
        outcome = await host.kill(await host.holders(), grace_s=0.3)
        assert [ended.pid for ended in outcome.ended] == [process.pid]
        assert process.wait(5) == -9


async def test_files_are_written_whole_and_read_in_parts(host: Host, tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "cmd.sh")
    await host.write(path, b"#!/bin/sh\nexit 7\n", executable=True)
    assert (await host.run([path])).exit_code == 7
    assert await host.read(path, offset=10, limit=4) == b"exit"
    assert await host.read(str(tmp_path / "none")) == b""
    assert os.listdir(tmp_path / "new") == ["cmd.sh"]


async def test_a_port_that_somebody_listens_on_is_passed_over(settings: HostSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        from_there = settings.model_copy(update={"port": taken})
        host = Host("local", from_there, LocalTransport("local", sys.executable))
        await host.open()
        first = await host.free_port()
        assert first > taken
        assert await host.free_port(avoid=[first]) > first


async def test_the_agent_runs_on_python_3_8(settings: HostSettings, tmp_path: Path) -> None:
    python = oldest_python()
    if python is None:
        pytest.skip("there is no working python3.8 on this machine")
    host = Host("local", settings, LocalTransport("local", python))
    await host.open()
    assert host.identity.python.startswith("3.8.")
    mark = f"test{tmp_path}/"
    folder = host.launch_folder(mark)
    program = f"echo $$ > {tmp_path}/pid; echo hello; exec sleep 1000"
    await host.start(["sh", "-c", program], env={}, folder=folder, mark=mark, lease_s=60, grace_s=1)
    pid = pid_in(tmp_path / "pid")
    watched = await host.watch(folder, mark, 0)
    assert (watched.running, watched.log, watched.processes) == (True, b"hello\n", 1)
    assert pid in [process.pid for process in await host.occupants()]
    outcome = await host.stop(mark, grace_s=5)
    assert [process.pid for process in outcome.ended] == [pid]


def _fields(process: object) -> dict[str, object]:
    return {name: getattr(process, name) for name in type(process).__slots__}  # type: ignore[attr-defined]
