"""The capture program itself, as a program, against a real server."""

import asyncio
import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

import tasks.load
from tasks.load.capture import stream as endings
from tasks.load.captured import read_captured
from tasks.load.request import encode_request
from tasks.load.target import Target
from tests.load.streaming_server import Behaviour, StreamingServer

ROOM = Path(tasks.load.__file__ or "").parent
BOOT = "import sys; sys.path.append(sys.argv[1]); from capture.program import main; main()"
SOON_NS = 20_000_000


class Program:
    """The program, fed by hand."""

    def __init__(self, path: Path, port: int, **job) -> None:
        self.path = path
        count, tokens = job.pop("count", 1), job.pop("tokens", 4)
        due_ns = job.pop("due_ns", [0] * count)
        request = encode_request(Target(f"http://127.0.0.1:{port}"), "hello", tokens)
        usual = {
            "host": "127.0.0.1",
            "port": port,
            "paced": False,
            "slots": 1,
            "preconnect": 1,
            "timeout_s": 5.0,
            "connect_s": 5.0,
            "path": str(path),
        }
        requests = [[number, due_ns[number], len(request)] for number in range(count)]
        head = json.dumps({**usual, **job, "requests": requests}).encode()
        self.job = struct.pack("<I", len(head)) + head + request * count

    async def __aenter__(self) -> "Program":
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", BOOT, str(ROOM)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.process.stdin.write(self.job)
        assert (await self.hear())["event"] == "ready"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def hear(self):
        return json.loads(await self.process.stdout.readline())

    def go(self) -> int:
        start = time.monotonic_ns() + SOON_NS
        self.process.stdin.write(b"go %020d" % start)
        return start

    async def end(self):
        while (message := await self.hear())["event"] != "end":
            pass
        await self.process.wait()
        return message, sorted(read_captured(self.path), key=lambda captured: captured.index)


async def load(tmp_path: Path, behaviour: Behaviour, **job):
    """Run one job to its end: what the program says, what it kept, what the server knows."""
    async with (
        StreamingServer(behaviour) as server,
        Program(tmp_path / "streams", server.port, **job) as program,
    ):
        program.go()
        facts, streams = await program.end()
        return facts, streams, server


async def test_a_closed_loop_keeps_its_slots_busy_over_the_same_connections(tmp_path):
    facts, streams, server = await load(tmp_path, Behaviour(), count=9, slots=3, preconnect=3)
    assert [stream.index for stream in streams] == list(range(9))
    assert {stream.ending for stream in streams} == {endings.COMPLETE}
    assert len(server.generations) == 9
    assert len({generation.connection for generation in server.generations}) == 3
    assert facts["opened"] == 3
    assert (facts["stopped"], facts["unsent"], facts["retries"]) == ("", 0, 0)
    edges = sorted([(s.sent_ns, 1) for s in streams] + [(s.closed_ns, -1) for s in streams])
    in_flight = [sum(step for _, step in edges[: n + 1]) for n in range(len(edges))]
    assert max(in_flight) == 3


async def test_every_byte_is_kept_with_its_arrival(tmp_path):
    facts, (stream,), server = await load(tmp_path, Behaviour(itl_s=0.003), tokens=6)
    (generation,) = server.generations
    assert stream.raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert stream.raw.endswith(b"0\r\n\r\n")
    assert stream.raw.count(b"data: {") == 6
    assert stream.sizes[-1] == len(stream.raw)
    assert list(stream.sizes) == sorted(stream.sizes)
    assert list(stream.times) == sorted(stream.times)
    assert facts["reads"] == len(stream.times)
    assert facts["bytes"] == len(stream.raw)
    # Nothing arrives before it is sent; the kernel's stamps are comparable with our clock.
    for number, sent_ns in enumerate(generation.chunk_ns):
        event_end = _end_of_event(stream.raw, number)
        arrived = next(
            t for t, size in zip(stream.times, stream.sizes, strict=True) if size >= event_end
        )
        assert sent_ns < arrived
    assert stream.sent_ns < generation.read_ns < stream.times[0]


def _end_of_event(raw: bytes, number: int) -> int:
    at = -1
    for _ in range(number + 1):
        at = raw.index(b"\n\n", at + 1)
    return at + 2


async def test_the_loopback_interface_is_stamped_by_the_kernel(tmp_path):
    facts, _, _ = await load(tmp_path, Behaviour(), count=4)
    assert facts["unstamped"] <= 1
    assert facts["clock_step_ns"] == 0


async def test_an_open_loop_sends_on_time_however_many_are_in_flight(tmp_path):
    due_ns = [0, 5_000_000, 10_000_000, 15_000_000]
    slow = Behaviour(ttft_s=0.2)
    _, streams, _ = await load(
        tmp_path, slow, count=4, due_ns=due_ns, paced=True, slots=0, preconnect=2
    )
    assert [later.due_ns - earlier.due_ns for earlier, later in pairwise(streams)] == [
        5_000_000
    ] * 3
    assert all(stream.sent_ns >= stream.due_ns for stream in streams)
    assert streams[-1].sent_ns < streams[0].closed_ns


async def test_a_server_that_closes_after_each_answer(tmp_path):
    facts, streams, server = await load(tmp_path, Behaviour(close_after_answer=True), count=5)
    assert {stream.ending for stream in streams} == {endings.COMPLETE}
    assert len(server.generations) == 5
    assert facts["opened"] == 5


@pytest.mark.parametrize(
    ("fault", "ending", "error"),
    [
        ("500", endings.COMPLETE, ""),
        ("whole", endings.COMPLETE, ""),
        ("malformed", endings.COMPLETE, ""),
        ("cut", endings.EOF, "the server closed the connection"),
        ("reset", endings.RESET, "Connection reset by peer"),
        ("not http", endings.COMPLETE, ""),
        ("close at once", endings.EOF, "the server closed the connection"),
        ("stall", endings.TIMEOUT, "no end after 0.3 s"),
    ],
)
async def test_a_fault_ends_its_own_request_only(tmp_path, fault, ending, error):
    # A connection that closed before the answer is tried once more: both tries must fail.
    faults = {1: fault, 2: fault} if fault == "close at once" else {1: fault}
    behaviour = Behaviour(faults=faults)
    _, streams, _ = await load(tmp_path, behaviour, count=4, timeout_s=0.3)
    assert [stream.ending for stream in streams] == [0, ending, 0, 0]
    assert streams[1].error == error


async def test_a_stale_connection_is_replaced_once(tmp_path):
    facts, streams, _ = await load(tmp_path, Behaviour(faults={1: "close at once"}), count=3)
    assert [stream.ending for stream in streams] == [endings.COMPLETE] * 3
    assert [stream.retries for stream in streams] == [0, 1, 0]
    assert facts["retries"] == 1


async def test_a_server_that_refuses_stops_the_load(tmp_path):
    async with StreamingServer() as server:
        port = server.port
    async with Program(tmp_path / "streams", port, count=50, slots=2, preconnect=2) as program:
        program.go()
        facts, streams = await program.end()
    assert facts["stopped"] == "refused"
    assert {stream.error for stream in streams} == {"Connection refused"}
    assert len(streams) <= 2
    assert facts["unsent"] == 50 - len(streams)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_that_never_comes_about_stops_the_load(tmp_path, tls):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, contextlib.ExitStack() as full:
        if not tls:  # connections beyond the backlog are never answered; TLS is never greeted
            for _ in range(2):
                waiting = full.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(deaf.getsockname())
        job = {"count": 9, "preconnect": 0, "connect_s": 0.1, "tls": tls}
        async with Program(tmp_path / "streams", deaf.getsockname()[1], **job) as program:
            program.go()
            facts, streams = await program.end()
    assert [stream.error for stream in streams] == ["no connection within 0.1 s"]
    assert {stream.ending for stream in streams} == {endings.REFUSED}
    assert (facts["stopped"], facts["unsent"]) == ("refused", 8)


async def test_a_server_that_dies_is_noticed_at_once(tmp_path):
    async with (
        StreamingServer(Behaviour(ttft_s=0.05, itl_s=0.02)) as server,
        Program(
            tmp_path / "streams", server.port, count=50, slots=4, preconnect=4, tokens=40
        ) as program,
    ):
        program.go()
        await asyncio.sleep(0.3)
        await server.die()
        facts, streams = await asyncio.wait_for(program.end(), 5)
    assert facts["stopped"] == "refused"
    assert sum(stream.ending == endings.RESET for stream in streams) == 4
    assert facts["unsent"] == 50 - len(streams)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, "stop it is late\n"])
async def test_a_stop_keeps_what_was_measured(tmp_path, how):
    behaviour = Behaviour(faults={3: "stall", 4: "stall"})
    async with (
        StreamingServer(behaviour) as server,
        Program(
            tmp_path / "streams", server.port, count=50, slots=2, preconnect=2, timeout_s=60.0
        ) as program,
    ):
        program.go()
        await server.until(5)
        if isinstance(how, str):
            program.process.stdin.write(how.encode())
        else:
            program.process.send_signal(how)
        facts, streams = await asyncio.wait_for(program.end(), 5)
    assert facts["stopped"] == ("it is late" if isinstance(how, str) else "interrupted")
    assert [stream.ending for stream in streams] == [0, 0, 0, *[endings.ABANDONED] * 2]
    assert program.process.returncode == 0


@pytest.mark.parametrize("started", [False, True])
async def test_without_its_parent_the_program_ends(tmp_path, started):
    async with (
        StreamingServer(Behaviour(faults={0: "stall"})) as server,
        Program(tmp_path / "streams", server.port, timeout_s=60.0) as program,
    ):
        if started:
            program.go()
            await server.until(1)
        program.process.stdin.close()
        assert await asyncio.wait_for(program.process.wait(), 5) == 1


async def test_progress_is_told_while_it_runs(tmp_path):
    async with (
        StreamingServer(Behaviour(ttft_s=0.7)) as server,
        Program(tmp_path / "streams", server.port, count=1) as program,
    ):
        program.go()
        message = await program.hear()
    assert message["event"] == "progress"
    assert (message["done"], message["in_flight"]) == (0, 1)


def test_it_needs_nothing_but_the_standard_library():
    code = (
        "import sys; sys.path.append(sys.argv[1]); import capture.program;"
        "print([m for m in sys.modules if 'site-packages' in str(getattr("
        "sys.modules[m], '__file__', ''))])"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOM)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
