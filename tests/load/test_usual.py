"""The short cut and the thorough way agree, or the short cut declines."""

import json

import pytest

from tasks.load.response import parse_response
from tasks.load.sse import timed_events
from tasks.load.tokens import trace_tokens
from tasks.load.usual import read_usual

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(count: int, text: str, **more) -> bytes:
    meta = {"finish_reason": None, "completion_tokens": count, "cached_tokens": 2, **more}
    return b"data: " + json.dumps({"text": text, "meta_info": meta}).encode() + b"\n\n"


def answer(*chunks: bytes) -> bytes:
    framed = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    return HEAD + b"".join(framed) + b"0\r\n\r\n"


EVENTS = [
    event(1, ""),
    event(3, "a"),
    event(3, "a"),
    event(6, 'a "completion_tokens": 9, b'),
    event(7, "data: x\n\n", finish_reason={"type": "length"}, spec_verify_ct=4, prompt_tokens=5),
]
USUAL = answer(*EVENTS, b"data: [DONE]\n\n")


def reads(raw: bytes, size: int) -> list[int]:
    """How many bytes had come after each read, with reads of one size."""
    return [*range(size, len(raw), size), len(raw)]


def thorough(raw: bytes, sizes: list[int], times: range):
    response = parse_response(raw, sizes)
    assert response.complete
    return trace_tokens("sglang", timed_events(response.body, response.marks, times))


@pytest.mark.parametrize("size", [1, 7, 50, 170, 400, 10_000])
def test_they_agree_however_the_reads_fall(size):
    sizes = reads(USUAL, size)
    times = range(100, 100 + len(sizes))
    usual = read_usual(USUAL, sizes, times)
    assert usual == thorough(USUAL, sizes, times)
    assert usual.counts == [1, 3, 6, 7]
    assert usual.verify_steps == 4


def test_they_agree_on_several_events_in_one_chunk():
    raw = answer(EVENTS[0] + EVENTS[1], *EVENTS[2:], b"data: [DONE]\n\n")
    sizes = reads(raw, 200)
    assert read_usual(raw, sizes, range(99)) == thorough(raw, sizes, range(99))


def test_wherever_a_proxy_cuts_the_chunks_it_agrees_or_declines():
    body = b"".join(EVENTS) + b"data: [DONE]\n\n"
    declined = 0
    for at in range(1, len(body)):
        raw = answer(body[:at], body[at:])
        usual = read_usual(raw, [len(raw)], range(1))
        declined += usual is None
        assert usual in (None, thorough(raw, [len(raw)], range(1)))
    assert 0 < declined < len(body)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        HEAD,
        answer(*EVENTS),
        answer(b"data: [DONE]\n\n"),
        answer(EVENTS[0], b"data: {oops\n\n", b"data: [DONE]\n\n"),
        answer(EVENTS[0], b'data: {"error":{"message":"no"}}\n\n', b"data: [DONE]\n\n"),
        answer(b'data: {"choices":[],"usage":{"completion_tokens":1,"a":0}}\n\ndata: [DONE]\n\n'),
        answer(b'data: {"text":"a","meta_info":{"completion_tokens":1}}\n\ndata: [DONE]\n\n'),
    ],
)
def test_what_is_unusual_is_declined(raw):
    assert read_usual(raw, [len(raw)], range(1)) is None
