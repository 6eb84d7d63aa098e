"""Plain events are kept as counts, and nothing that is told of a request changes for it."""

import io
import re
import socket
from array import array
from collections import deque
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.measurement import RequestOutcome
from tasks.load.capture.loop import Loop
from tasks.load.capture.stream import HEADER, LAST_CHUNK, STAMP, Stream, now_ns
from tasks.load.captured import read_captured
from tasks.load.parse import Asked, to_record
from tasks.load.tokens import PLAIN

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def generate(count: int, text: str = "a", reason: str = "null") -> bytes:
    meta = f'"finish_reason":{reason},"prompt_tokens":7,"completion_tokens":{count},"cached":0'
    return f'data: {{"text":"{text}","meta_info":{{{meta}}}}}\n\n'.encode()


def complete(count: int, text: str = "a", reason: str = "null") -> bytes:
    usage = f'"usage":{{"prompt_tokens":7,"completion_tokens":{count},"total_tokens":9}}'
    choice = f'{{"index":0,"text":"{text}","finish_reason":{reason}}}'
    return f'data: {{"choices":[{choice}],{usage}}}\n\n'.encode()


def chat(count: int, text: str = "a", reason: str = "null") -> bytes:
    return complete(count, text, reason).replace(
        b'"text":"%s"' % text.encode(), b'"delta":{"content":"%s"}' % text.encode()
    )


def uncounted(count: int, text: str = "a", reason: str = "null") -> bytes:
    return re.sub(rb'"usage":{.*?}', b'"usage":null', complete(count, text, reason))


def uncounted_chat(count: int, text: str = "a", reason: str = "null") -> bytes:
    return re.sub(rb',"usage":{.*?}', b"", chat(count, text, reason))


EVENTS = {
    ("sglang", "counted"): generate,
    ("openai", "counted"): complete,
    ("openai-chat", "counted"): chat,
    ("openai", "uncounted"): uncounted,
    ("openai-chat", "uncounted"): uncounted_chat,
}
LAST = {"sglang": '{"type":"length","length":9}', "openai": '"length"', "openai-chat": '"length"'}


def answer(dialect, count: int = 9, silent: int = 0, spaced: bool = False, step: int = 1) -> bytes:
    """A whole answer whose first `silent` events have no text, `step` tokens an event."""
    make, (backend, kind) = EVENTS[dialect], dialect
    events = [make(n, "" if n <= silent else "a" * n) for n in range(1, count, step)]
    events += [make(count, "a" * count, LAST[backend])]
    if kind == "uncounted":
        usage = b'{"prompt_tokens":7,"completion_tokens":%d}' % count
        events.append(b'data: {"choices":[],"usage":%b}\n\n' % usage)
    if spaced:
        events = [event.replace(b'":', b'": ') for event in events]
    return HEAD + b"".join(map(chunk, [*events, DONE])) + LAST_CHUNK[2:]


def capture(tmp_path, pieces: list[bytes], plain=None):
    """Have the loop read an answer piece by piece; what it kept of it."""
    out = (tmp_path / "streams").open("w+b")
    with socket.create_server(("127.0.0.1", 0)) as server, out:
        job = {
            "host": "127.0.0.1",
            "port": server.getsockname()[1],
            "paced": False,
            "slots": 1,
            "preconnect": 1,
            "timeout_s": 10,
            "connect_s": 10,
            "plain": plain,
        }
        loop = Loop(job, deque(), out)
        loop.connect()
        (connection,) = loop.connections.values()
        connection.stream, loop.in_flight = Stream(0, 0, b""), 1
        with server.accept()[0] as sender:
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                sender.send(piece)
                loop.read(connection)
        if loop.in_flight:
            loop.read(connection)  # the server has closed the connection
        loop.run(now_ns(), lambda *_: None)
        loop.close()
    (captured,) = read_captured(tmp_path / "streams")
    return captured, loop


def told(captured, backend: str):
    """What a record says, without its times."""
    record = to_record(captured, Asked(backend, (9,), paced=False))
    return (
        record.outcome,
        record.error,
        tuple(record.cumulative_tokens),
        record.completion_tokens,
        record.prompt_tokens,
        record.finish_reason,
        record.first_text_ns is None,
        set(pairwise(record.arrival_ns)) == set(pairwise(sorted(record.arrival_ns))),
    )


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("dialect", EVENTS)
def test_most_of_an_answer_is_kept_as_counts(dialect, spaced, tmp_path):
    backend, _ = dialect
    whole = answer(dialect, 40, spaced=spaced)
    pieces = [HEAD, *(part + b"\n\n\r\n" for part in whole[len(HEAD) :].split(b"\n\n\r\n"))]
    pieces[-1] = LAST_CHUNK[2:]
    captured, loop = capture(tmp_path, pieces, PLAIN[backend])
    plain, _ = capture(tmp_path, pieces)
    assert loop.reads == len(captured.times) + len(captured.counts)
    assert len(captured.counts) == 38  # all but the first and the last
    assert len(captured.raw) + 20 * len(captured.counts) < len(plain.raw)
    assert told(captured, backend) == told(plain, backend)
    record = to_record(captured, Asked(backend, (40,), paced=False))
    assert record.outcome is RequestOutcome.FINISHED
    assert tuple(record.cumulative_tokens) == tuple(range(1, 41))


@pytest.mark.parametrize("dialect", [name for name in EVENTS if name[1] == "counted"])
@pytest.mark.parametrize("silent", [0, 1, 3, 8])
def test_the_first_text_is_found_among_what_is_kept_whole(dialect, silent, tmp_path):
    backend, _ = dialect
    whole = answer(dialect, silent=silent)
    pieces = [part + b"\n\n\r\n" for part in whole.split(b"\n\n\r\n")]
    pieces[-1] = LAST_CHUNK[2:]
    captured, _ = capture(tmp_path, pieces, PLAIN[backend])
    record = to_record(captured, Asked(backend, (9,), paced=False))
    assert record.first_text_ns == record.arrival_ns[silent]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_however_an_answer_is_cut_the_record_says_the_same(tmp_path_factory, data):
    dialect = data.draw(st.sampled_from(sorted(EVENTS)))
    backend, count, silent = dialect[0], data.draw(st.integers(1, 13)), data.draw(st.integers(0, 9))
    step = data.draw(st.integers(1, 3)) if dialect[1] == "counted" else 1
    whole = answer(dialect, count, silent, data.draw(st.booleans()), step)
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(len(HEAD), len(whole) - 1))]  # and then cut off
    cuts = data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12))
    ends = [part.end() for part in _events(whole) if data.draw(st.integers(0, 3))]
    places = sorted({0, len(whole), *cuts, *ends})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    folder = tmp_path_factory.mktemp("brief")
    brief, _ = capture(folder, pieces, PLAIN[backend])
    plain, _ = capture(folder, pieces)
    assert told(brief, backend) == told(plain, backend)


def _events(whole: bytes):
    return re.finditer(rb"\n\n\r\n", whole)


@pytest.mark.parametrize(
    "odd",
    [
        b'data: {"error":{"message":"CUDA error"}}\n\n',
        b"data: nonsense\n\n",
        b': ping\n\ndata: {"text":"a","meta_info":{"completion_tokens":3}}\n\n',
        generate(3) + generate(4),
        generate(3).replace(b'"completion_tokens":3', b'"completion_tokens":null'),
        generate(3).replace(b"\n\n", b"\r\n\r\n"),
    ],
)
def test_an_odd_event_in_the_middle_is_kept_whole(odd, tmp_path):
    pieces = [HEAD, *(chunk(generate(n)) for n in (1, 2)), chunk(odd)]
    pieces += [chunk(generate(5)), chunk(generate(6, reason=LAST["sglang"])), chunk(DONE)]
    pieces.append(LAST_CHUNK[2:])
    brief, _ = capture(tmp_path, pieces, PLAIN["sglang"])
    plain, _ = capture(tmp_path, pieces)
    assert odd in brief.raw
    assert len(brief.counts) > 0
    said, meant = told(brief, "sglang"), told(plain, "sglang")
    assert said[:2] == meant[:2]
    if said[0] is RequestOutcome.FINISHED:  # else parsing ends there, and counting goes on
        assert said == meant


def test_an_event_that_ends_as_expected_but_is_the_last_is_kept_whole(tmp_path):
    last = generate(4, reason=LAST["sglang"])
    pieces = [HEAD, *(chunk(generate(n)) for n in (1, 2, 3)), chunk(last)]
    brief, _ = capture(tmp_path, [*pieces, chunk(DONE), LAST_CHUNK[2:]], PLAIN["sglang"])
    assert brief.counts.tolist() == [2, 3]
    assert last in brief.raw
    assert told(brief, "sglang")[5] == "length"


def test_a_clock_that_is_stepped_moves_no_arrival(tmp_path):
    stream = Stream(0, 0, b"")
    stream.note(STAMP.pack(5, 10), 2)
    stream.pack()
    stream.note(STAMP.pack(5, 20), 3)
    stream.shift(1_000 - 400)  # the offset was 1,000 ns and is 400 from now on
    stream.note(STAMP.pack(5, 630), 4)
    path = tmp_path / "streams"
    with path.open("wb") as out:
        stream.write_to(out, 400)
    (captured,) = read_captured(path)
    assert (captured.count_times - 5_000_000_000).tolist() == [1_010, 1_020, 1_030]
    assert captured.counts.tolist() == [2, 3, 4]


def test_the_layout_of_the_file_is_its_headers():
    stream = Stream(3, 5, b"")
    stream.pieces, stream.times = [b"ab", b"c"], array("q", [1, 2])
    for stamp, count in (((0, 7), 1), ((1, 8), 2), ((1, 9), 5)):
        stream.note(STAMP.pack(*stamp), count)
    out = io.BytesIO()
    assert stream.write_to(out, 100) == 3
    assert len(out.getvalue()) == HEADER.size + 8 * (2 + 2 + 4) + 3 * STAMP.size + 3
    assert list(accumulate(map(len, stream.pieces))) == [2, 3]


@pytest.mark.parametrize(
    ("reads", "in_flight", "unstamped", "nap_ns"),
    [
        (25_600, 1024, 0, 1_000_000),  # a token each 20 ms: as long as ever allowed
        (1_600, 64, 0, 1_000_000),  # the same, three of which come in that time
        (6_400, 64, 0, 312_500),  # each 5 ms: a sixteenth of that
        (6_400, 16, 0, 0),  # one comes in a sixteenth of 1.25 ms: nothing would gather
        (25_600, 1024, 1, 0),  # without the kernel's stamps the moment of the look counts
    ],
)
def test_reads_gather_for_less_than_the_gap_between_tokens(reads, in_flight, unstamped, nap_ns):
    job = {"host": "127.0.0.1", "port": 9, "paced": False, "slots": 1}
    loop = Loop({**job, "preconnect": 0, "timeout_s": 1, "connect_s": 1}, deque(), io.BytesIO())
    loop.done_reads, loop.in_flight, loop.unstamped = reads, in_flight, unstamped
    loop.plan_nap()
    assert loop.nap == nap_ns
    loop.done_reads += 10
    loop.plan_nap()
    assert loop.nap == 0  # it goes by the last half second alone
    loop.close()
