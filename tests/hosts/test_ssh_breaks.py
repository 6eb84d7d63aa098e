"""A connection that stalls, is reset or whose sshd dies: noticed, mended, nothing done twice."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tasks.domain.errors import ConnectionBroken, HostUnreachable
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import hold
from tests.hosts.conftest import Box
from tests.hosts.processes import alive, pid_in
from tests.hosts.sshd import until

NOTICED_S, MENDED_S = 10.0, 30.0


def cut(box: Box) -> None:
    box.wire.cut()


def stall(box: Box) -> None:
    box.wire.stall()


def kill_sshd(box: Box) -> None:
    box.sshd.kill()


async def heal(box: Box) -> None:
    if box.sshd.process is None:
        await asyncio.to_thread(box.sshd.start)
    box.wire.mend()


BREAKS = [cut, stall, kill_sshd]
Break = Callable[[Box], None]


@pytest.mark.parametrize("broken", BREAKS)
async def test_a_break_is_noticed_and_mended(far: Host, box: Box, broken: Break) -> None:
    waiting = asyncio.create_task(far.run(["sleep", "997"], timeout_s=60))
    await asyncio.sleep(0.5)
    broken(box)
    box.wire.refusing = True
    noticed_s = await until(lambda: far.transport.breaks == 1, NOTICED_S + 1)
    assert noticed_s <= NOTICED_S
    with pytest.raises(ConnectionBroken):
        await waiting
    asked = asyncio.create_task(far.ask("hello", {}))
    await asyncio.sleep(2.0)
    assert not asked.done()
    back = time.monotonic()
    await heal(box)
    await asked
    print(f"{broken.__name__}: noticed {noticed_s:.1f} s, mended {time.monotonic() - back:.1f} s")
    assert time.monotonic() - back <= MENDED_S
    left = await far.run(["sh", "-c", "pgrep -fx 'sleep 997' || true"])
    assert left.stdout == b"", "what the broken connection had run is ended after the mending"


@pytest.mark.parametrize("broken", BREAKS)
async def test_a_question_is_repeated(far: Host, box: Box, broken: Break) -> None:
    asked = [asyncio.create_task(far.ask("hello", {})) for _ in range(3)]
    await asyncio.sleep(0.01)
    broken(box)
    await asyncio.sleep(0.3)
    await heal(box)
    for answer in await asyncio.gather(*asked):
        assert answer["boot_id"] == far.identity.boot_id


async def test_a_command_that_failed_is_not_repeated(far: Host, tmp_path: Path) -> None:
    file = tmp_path / "runs"
    done = await far.run(["sh", "-c", f"echo once >> {file}; exit 1"], repeatable=True)
    assert done.exit_code == 1
    assert file.read_text() == "once\n"


async def test_patience_ends_with_a_word_and_the_next_question_does_not_wait(box: Box) -> None:
    impatient = box.settings.model_copy(update={"reconnect_patience": 2.0})
    async with connect("box", impatient) as host:
        box.wire.refusing = True
        box.wire.cut()
        started = time.monotonic()
        with pytest.raises(HostUnreachable, match="can't be reached"):
            await host.ask("hello", {})
        assert 2.0 <= time.monotonic() - started < 6.0
        started = time.monotonic()
        with pytest.raises(HostUnreachable):
            await host.ask("hello", {})
        assert time.monotonic() - started < 1.0
        box.wire.mend()
        assert (await host.run(["echo", "back"])).stdout == b"back\n"


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2])
async def test_a_server_is_started_once_however_the_answer_gets_lost(
    far: Host, box: Box, tmp_path: Path, delay_s: float
) -> None:
    mark = f"test{tmp_path}/"
    folder = far.launch_folder(mark)
    program = f"echo $$ >> {tmp_path}/pids; exec sleep 996"
    starting = asyncio.create_task(
        far.start(["sh", "-c", program], env={}, folder=folder, mark=mark, lease_s=60, grace_s=1)
    )
    await asyncio.sleep(delay_s)
    cut(box)
    await starting
    pid = pid_in(tmp_path / "pids")
    await asyncio.sleep(0.5)
    assert pid_in(tmp_path / "pids") == pid, "a second line would be no number"
    watched = await far.watch(folder, mark, 0)
    assert (watched.running, watched.processes) == (True, 1)
    await far.stop(mark, grace_s=2)
    assert not alive(pid)


async def test_no_byte_of_a_log_is_lost_or_doubled(far: Host, box: Box, tmp_path: Path) -> None:
    mark = f"test{tmp_path}/"
    folder = far.launch_folder(mark)
    lines = 3000
    program = (
        "import sys, time\n"
        f"for number in range({lines}):\n"
        "    print(f'line {number}', flush=True)\n"
        "    if number % 10 == 0: time.sleep(0.01)\n"
    )
    argv = [sys.executable, "-c", program]
    await far.start(argv, env={}, folder=folder, mark=mark, lease_s=60, grace_s=1)
    log, ended, cuts = b"", False, 0
    while not ended:
        looking = asyncio.create_task(far.watch(folder, mark, len(log)))
        await asyncio.sleep(0.01 * (cuts % 20))
        if cuts < 20:
            cut(box)
            cuts += 1
        watched = await looking
        log += watched.log
        ended = watched.exit_code is not None and not watched.log
    assert log == b"".join(b"line %d\n" % number for number in range(lines))
    assert far.transport.breaks >= 1, "or nothing was tried"


async def test_stopping_goes_on_over_a_new_connection(far: Host, box: Box, tmp_path: Path) -> None:
    mark = f"test{tmp_path}/"
    program = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done"
    folder = far.launch_folder(mark)
    await far.start(["sh", "-c", program], env={}, folder=folder, mark=mark, lease_s=60, grace_s=1)
    pid = pid_in(tmp_path / "pid")
    stopping = asyncio.create_task(far.stop(mark, grace_s=1.0))
    await asyncio.sleep(0.4)
    cut(box)
    assert (await stopping).left == ()
    assert not alive(pid)


async def test_the_lock_is_taken_kept_and_given_back_through_breaks(far: Host, box: Box) -> None:
    async with hold(far, "us", "token", lease_s=3.0, wait_s=0) as held:
        for _ in range(4):
            cut(box)
            await asyncio.sleep(1.0)
        assert not held.lost.is_set()
        cut(box)
    lock = Path(far.run_folder) / "lock.json"
    assert not lock.exists()


SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = b"x" * int(self.path[1:])
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.fixture
async def served(far: Host, tmp_path: Path) -> "Awaitable[int]":  # type: ignore[misc]
    """The port of an HTTP server on the host."""
    mark = f"test{tmp_path}/"
    folder = far.launch_folder(mark)
    argv = [sys.executable, "-c", SERVER]
    await far.start(argv, env={}, folder=folder, mark=mark, lease_s=60, grace_s=1)
    log = Path(folder) / "server.log"
    await until(lambda: log.read_bytes().endswith(b"\n"))
    yield int(log.read_text())
    await far.stop(mark, grace_s=1)


async def test_a_port_is_forwarded_and_survives_breaks(far: Host, box: Box, served: int) -> None:
    url = await far.transport.address(served)
    assert url == await far.transport.address(served)
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        for _ in range(3):
            answers = await asyncio.gather(
                *(client.get(f"{url}/{size}") for size in (1, 70_000, 3_000_000))
            )
            assert [len(answer.content) for answer in answers] == [1, 70_000, 3_000_000]
            cut(box)
            await until(lambda: far.transport.breaks > 0)
            await asyncio.sleep(0.1)
    assert (await far.ask("hello", {}))["uid"] == far.identity.uid


async def test_a_port_where_nobody_listens_closes_its_connections(far: Host, served: int) -> None:
    url = await far.transport.address(1)
    with pytest.raises(httpx.HTTPError):
        await httpx.AsyncClient(trust_env=False).get(url)


async def test_a_direct_address_is_the_configured_one_or_the_host_s(box: Box) -> None:
    direct = box.settings.model_copy(update={"tunnel": False})
    async with connect("box", direct) as host:
        assert await host.transport.address(30000) == "http://127.0.0.1:30000"
    there = direct.model_copy(update={"server_address": "10.1.2.3"})
    async with connect("box", there) as host:
        assert await host.transport.address(30000) == "http://10.1.2.3:30000"
        assert host.transport.path == "direct"
