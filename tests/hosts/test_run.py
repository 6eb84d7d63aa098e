"""Commands on a host: their output, their time-out, their cancellation."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.errors import HostError
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tests.hosts.processes import alive, pid_in, wait_for

FAMILY = "sleep 1000 & echo $! > {file}.new; mv {file}.new {file}; wait"
"""A shell with a child whose pid it writes down."""


async def test_output_status_and_input(host: Host) -> None:
    completed = await host.run(["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=b"words")
    assert (completed.exit_code, completed.stdout, completed.stderr) == (3, b"words", b"oops\n")
    assert not completed.ok


async def test_output_beyond_a_pipe_and_beyond_the_bound(host: Host) -> None:
    program = "import sys; sys.stdout.write('x' * 3_000_000)"
    whole = await host.run([sys.executable, "-c", program])
    bounded = await host.run([sys.executable, "-c", program], max_output_bytes=1000)
    assert (len(whole.stdout), len(bounded.stdout)) == (3_000_000, 1000)


async def test_the_host_s_variables_are_set_and_the_caller_s_win(settings: HostSettings) -> None:
    with_env = settings.model_copy(update={"env": {"A": "host", "B": "host"}})
    async with connect("local", with_env) as host:
        completed = await host.run(["sh", "-c", "echo $A $B"], env={"B": "caller"})
    assert completed.stdout == b"host caller\n"


async def test_a_time_out_ends_the_whole_group(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "child"
    completed = await host.run(["sh", "-c", FAMILY.format(file=file)], timeout_s=0.5)
    assert completed.exit_code is None
    child = pid_in(file)
    wait_for(lambda: not alive(child), "the end of the child")


async def test_cancellation_ends_the_whole_group(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "child"
    running = asyncio.create_task(host.run(["sh", "-c", FAMILY.format(file=file)]))
    child = await asyncio.to_thread(pid_in, file)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    wait_for(lambda: not alive(child), "the end of the child")


async def test_a_command_that_is_not_there_is_named(host: Host) -> None:
    with pytest.raises(HostError, match=r"host local: can't run no-such-command: No such file"):
        await host.run(["no-such-command"])


async def test_a_leading_tilde_is_the_home_on_the_host(
    settings: HostSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    os.symlink("/bin/echo", tmp_path / "bin" / "say")
    at_home = settings.model_copy(update={"run_folder": "~/runs"})
    async with connect("local", at_home) as host:
        assert host.run_folder == f"{tmp_path}/runs"
        assert host.expand("~") == str(tmp_path)
        assert host.expand("~other/x") == "~other/x"
        assert (await host.run(["~/bin/say", "~/kept"])).stdout == b"~/kept\n"
        assert (tmp_path / "runs").is_dir()


async def test_a_run_folder_that_can_not_be_written_is_named(settings: HostSettings) -> None:
    impossible = settings.model_copy(update={"run_folder": "/proc/nowhere"})
    with pytest.raises(HostError, match="can't write the run folder"):
        async with connect("local", impossible):
            pass
