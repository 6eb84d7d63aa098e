"""A detached server: it outlives who started it, its end is recorded, its lease can run out."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tasks.hosts.host import Host
from tests.hosts.processes import IGNORING, alive, pid_in, wait_for

TREE = IGNORING + (
    "import os, sys\n"
    "folder = sys.argv[1]\n"
    "def tell(name):\n"
    "    open(f'{folder}/{name}.new', 'w').write(str(os.getpid()))\n"
    "    os.rename(f'{folder}/{name}.new', f'{folder}/{name}')\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    tell('child')\n"
    "    if os.fork() == 0:\n"
    "        tell('grandchild')\n"
    "else:\n"
    "    tell('root')\n"
    "time.sleep(1000)\n"
)
"""A server with a child in a session of its own and a grandchild, all deaf to SIGTERM."""


def mark_of(folder: Path | str) -> str:
    """A marker for each test: a supervisor ends whatever bears its own."""
    return f"test{folder}/"


async def start(host: Host, argv: list[str], folder: Path, lease_s: float = 60) -> str:
    mark = mark_of(folder)
    await host.start(
        argv, env={"A": "1"}, folder=str(folder), mark=mark, lease_s=lease_s, grace_s=0.2
    )
    return str(folder)


async def start_tree(host: Host, tmp_path: Path, lease_s: float = 60) -> list[int]:
    await start(host, [sys.executable, "-c", TREE, str(tmp_path)], tmp_path / "server", lease_s)
    return [pid_in(tmp_path / name) for name in ("root", "child", "grandchild")]


async def ended(host: Host, folder: str) -> int | None:
    """Wait for the recorded exit status."""
    for _ in range(500):
        watched = await host.watch(folder, mark_of(folder), 0)
        if watched.exit_code is not None:
            assert not watched.running
            return watched.exit_code
        await asyncio.sleep(0.02)
    return None


async def test_output_is_read_from_where_the_last_look_ended(host: Host, tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = f"echo one $A; while [ ! -e {go} ]; do sleep 0.02; done; echo two >&2; exit 5"
    folder = await start(host, ["sh", "-c", program], tmp_path / "server")
    log = tmp_path / "server" / "server.log"
    wait_for(lambda: log.read_bytes(), "the first line")
    first = await host.watch(folder, mark_of(folder), 0)
    assert (first.log, first.running, first.exit_code) == (b"one 1\n", True, None)
    assert first.processes >= 1
    go.touch()
    assert await ended(host, folder) == 5
    second = await host.watch(folder, mark_of(folder), first.log_bytes)
    assert (second.log, second.processes) == (b"two\n", 0)


async def test_a_signal_is_recorded_as_such(host: Host, tmp_path: Path) -> None:
    folder = await start(host, ["sh", "-c", "kill -SEGV $$"], tmp_path / "server")
    assert await ended(host, folder) == -signal.SIGSEGV


async def test_a_program_that_is_not_there_ends_with_127(host: Host, tmp_path: Path) -> None:
    folder = await start(host, ["/no/such/python"], tmp_path / "server")
    assert await ended(host, folder) == 127
    log = (await host.watch(folder, mark_of(folder), 0)).log
    assert log == b"/no/such/python: No such file or directory\n"


async def test_stop_ends_every_process_of_the_tree(host: Host, tmp_path: Path) -> None:
    tree = await start_tree(host, tmp_path)
    outcome = await host.stop(mark_of(tmp_path / "server"), grace_s=0.3)
    assert {process.pid for process in outcome.ended} == set(tree)
    assert outcome.left == ()
    assert not any(map(alive, tree))
    assert await ended(host, str(tmp_path / "server")) == -signal.SIGKILL


async def test_stop_ends_only_what_bears_the_mark(host: Host, tmp_path: Path) -> None:
    tree = await start_tree(host, tmp_path)
    assert (await host.stop("other", grace_s=0.1)).ended == ()
    assert all(map(alive, tree))
    await host.stop(mark_of(tmp_path / "server"), grace_s=0.1)


async def test_a_server_that_nobody_wants_any_more_is_ended(host: Host, tmp_path: Path) -> None:
    tree = await start_tree(host, tmp_path, lease_s=1.0)
    wait_for(lambda: not any(map(alive, tree)), "the end of all processes", 8)
    assert await ended(host, str(tmp_path / "server")) == -signal.SIGKILL


async def test_a_wall_clock_that_is_set_anew_ends_no_server(host: Host, tmp_path: Path) -> None:
    tree = await start_tree(host, tmp_path)
    # To the host's clock the last renewal is years ago now.
    os.utime(tmp_path / "server" / "lease", (1, 1))
    await asyncio.sleep(0.3)
    assert all(map(alive, tree))


async def test_a_renewed_lease_keeps_the_server(host: Host, tmp_path: Path) -> None:
    tree = await start_tree(host, tmp_path, lease_s=1.0)
    request = {
        "run_folder": host.run_folder,
        "token": "nobody's",
        "folders": [str(tmp_path / "server")],
    }
    for _ in range(5):
        await asyncio.sleep(0.25)
        assert (await host.ask("renew", request))["ours"] is False
    assert all(map(alive, tree))
    await host.stop(mark_of(tmp_path / "server"), grace_s=0.1)


async def test_orphans_of_a_dead_server_are_still_ours(host: Host, tmp_path: Path) -> None:
    server, child, grandchild = await start_tree(host, tmp_path)
    folder = str(tmp_path / "server")
    os.kill(server, signal.SIGKILL)
    assert await ended(host, folder) == -signal.SIGKILL
    assert (await host.watch(folder, mark_of(folder), 0)).processes == 2
    outcome = await host.stop(mark_of(tmp_path / "server"), grace_s=0.2)
    assert {process.pid for process in outcome.ended} == {child, grandchild}


async def test_the_supervisor_goes_when_its_server_has_gone(host: Host, tmp_path: Path) -> None:
    folder = await start(host, ["true"], tmp_path / "server")
    await ended(host, folder)
    wait_for(lambda: not _supervisors(folder), "the end of the supervisor")


async def test_a_mark_that_is_the_beginning_of_another_s_is_not_its_family(
    host: Host, tmp_path: Path
) -> None:
    first, tenth = tmp_path / "attempt-1", tmp_path / "attempt-10"
    for folder in (first, tenth):
        await start(host, ["sleep", "1000"], folder)
    await host.stop(mark_of(first), grace_s=1)
    assert not (await host.watch(str(first), mark_of(first), 0)).running
    assert (await host.watch(str(tenth), mark_of(tenth), 0)).running
    await host.stop(mark_of(tmp_path).rstrip("/"), grace_s=1)


@pytest.mark.parametrize("port_of", ["ours", "another", "nobody"])
async def test_whose_the_port_is(host: Host, tmp_path: Path, port_of: str) -> None:
    listen = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], flush=True); time.sleep(1000)\n"
    )
    folder = await start(host, [sys.executable, "-c", listen], tmp_path / "server")
    log = tmp_path / "server" / "server.log"
    wait_for(lambda: log.read_bytes().endswith(b"\n"), "the port")
    port = int(log.read_bytes())
    if port_of == "nobody":
        await host.stop(mark_of(tmp_path / "server"), grace_s=1)
    mark = "other" if port_of == "another" else mark_of(folder)
    assert (await host.watch(folder, mark, 0, port)).port_holders == port_of
    await host.stop(mark_of(tmp_path / "server"), grace_s=1)


def _supervisors(folder: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"supervise" in words and folder.encode() in words:
            found.append(path.parent.name)
    return found
