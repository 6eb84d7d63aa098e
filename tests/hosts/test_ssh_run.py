"""Commands over SSH: the same as here, whatever is in their words; and nothing is left behind."""

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from tasks.domain.errors import HostError
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tests.hosts.conftest import Box
from tests.hosts.processes import alive, pid_in
from tests.hosts.sshd import until

FAMILY = "setsid sleep 1000 & echo $! > {file}.new; mv {file}.new {file}; wait"
TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
WRAPPER = """#!/bin/sh
# Enters a pretend container: a variable of its own, its words joined by another shell.
test "$1" = enter && shift
exec env IN_CONTAINER=yes "$@"
"""
WORDS = [
    "plain",
    "",
    "two words",
    "it's",
    'a "quoted" word',
    "$HOME",
    "`id`",
    "$(id)",
    "back\\slash",
    "new\nline",
    "tab\t",
    "*",
    "~",
    "a;b",
    "a&b|c>d<e",
    "!history",
    "--",
    "-n",
    "ümlaut ☃",
    "#no comment",
    "{a,b}",
    "a=b",
    "%s%d",
    "trailing ",
]


async def test_output_status_and_input(far: Host) -> None:
    completed = await far.run(["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=b"words")
    assert (completed.exit_code, completed.stdout, completed.stderr) == (3, b"words", b"oops\n")


async def test_large_input_and_output_and_the_bound(far: Host) -> None:
    data = os.urandom(3_000_000)
    assert (await far.run(["cat"], stdin=data)).stdout == data
    assert (await far.run(["cat"], stdin=data, max_output_bytes=1000)).stdout == data[:1000]


async def test_input_that_nobody_reads(far: Host) -> None:
    assert (await far.run(["true"], stdin=b"x" * 3_000_000)).ok


async def test_a_signal_is_told_as_here(far: Host) -> None:
    assert (await far.run(["sh", "-c", "kill -SEGV $$"])).exit_code == -11


async def test_a_command_that_is_not_there_is_named(far: Host) -> None:
    with pytest.raises(HostError, match=r"host box: can't run no-such-command: No such file"):
        await far.run(["no-such-command"])


@pytest.mark.parametrize("way", ["local", "ssh", "local prefix", "ssh prefix"])
async def test_words_and_variables_arrive_as_they_were(box: Box, tmp_path: Path, way: str) -> None:
    wrapper = tmp_path / "wrap per.sh"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    settings = box.settings
    if way.startswith("local"):
        settings = settings.model_copy(update={"address": None})
    if way.endswith("prefix"):
        settings = settings.model_copy(update={"prefix": (str(wrapper), "enter")})
    variables = {f"V{number}": word for number, word in enumerate(WORDS)}
    async with connect("box", settings) as host:
        completed = await host.run([sys.executable, "-c", TELL, *WORDS], env=variables)
    words, seen = json.loads(completed.stdout)
    assert words == WORDS
    assert {name: seen[name] for name in variables} == variables
    assert seen.get("IN_CONTAINER") == ("yes" if way.endswith("prefix") else None)


@pytest.mark.parametrize("how", ["time-out", "cancellation"])
@pytest.mark.parametrize("way", ["local", "ssh"])
async def test_what_is_given_up_leaves_no_process(
    box: Box, tmp_path: Path, how: str, way: str
) -> None:
    address = "box" if way == "ssh" else None
    file = tmp_path / "child"
    async with connect("box", box.settings.model_copy(update={"address": address})) as host:
        command = ["sh", "-c", FAMILY.format(file=file)]
        if how == "time-out":
            assert (await host.run(command, timeout_s=1.0)).exit_code is None
            child = pid_in(file)
        else:
            running = asyncio.create_task(host.run(command))
            child = await asyncio.to_thread(pid_in, file)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert not alive(child), "even a child in a session of its own is gone by then"


async def test_a_time_out_in_a_container_ends_what_is_inside(box: Box, tmp_path: Path) -> None:
    """Killing the client of `docker exec` leaves the command running: end it from inside."""
    wrapper = tmp_path / "exec.py"
    wrapper.write_text(
        f"#!{sys.executable}\n"
        "import subprocess, sys\n"
        "process = subprocess.Popen(sys.argv[1:], start_new_session=True)\n"
        "sys.exit(process.wait())\n"
    )
    wrapper.chmod(0o755)
    file = tmp_path / "child"
    async with connect("box", box.settings.model_copy(update={"prefix": (str(wrapper),)})) as host:
        completed = await host.run(["sh", "-c", FAMILY.format(file=file)], timeout_s=1.0)
        assert completed.exit_code is None
        assert not alive(pid_in(file))


async def test_more_commands_at_once_than_sshd_has_sessions(far: Host) -> None:
    done = await asyncio.gather(*(far.run(["sh", "-c", f"sleep 0.1; echo {n}"]) for n in range(40)))
    assert [int(each.stdout) for each in done] == list(range(40))


async def test_many_that_are_cancelled_at_once(far: Host, box: Box) -> None:
    running = [asyncio.create_task(far.run(["sleep", "998"])) for _ in range(12)]
    await asyncio.sleep(0.5)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert (await far.run(["echo", "fine"])).stdout == b"fine\n"
    left = await far.run(["sh", "-c", "pgrep -fx 'sleep 998' || true"])
    assert left.stdout == b""


async def test_a_chatty_login_shell_is_named_as_the_cause(
    far: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def chatty(*_: object, **__: object) -> object:
        from tasks.hosts.transport import Completed

        return Completed(0, b'Welcome!\n{"a": 1}', b"")

    monkeypatch.setattr(far.transport, "run", chatty)
    with pytest.raises(HostError, match="start-up file of the login shell"):
        await far.ask("hello", {})


async def test_one_connection_serves_everything(box: Box) -> None:
    async with connect("box", box.settings) as host:
        await asyncio.gather(*(host.run(["true"]) for _ in range(5)))
        await host.holders()
    assert box.sshd.logins == 1


async def test_twenty_hosts_are_polled_by_one_process(box: Box, tmp_path: Path) -> None:
    async def poll(number: int) -> str:
        folder = str(tmp_path / f"run-{number}")
        async with connect(
            f"box{number}", box.settings.model_copy(update={"run_folder": folder})
        ) as host:
            await asyncio.gather(*(host.occupants() for _ in range(3)))
            return host.run_folder

    folders = await asyncio.gather(*map(poll, range(20)))
    assert len(set(folders)) == 20
    await until(lambda: box.sshd.logins == 20)
