"""Conversations: every turn behind the earlier ones and their answers, in order."""

import json
from itertools import pairwise

import pytest

from settings.workload import Workload
from tasks.domain.measurement import RequestOutcome
from tasks.load.capture.follow import GAP, answer_of, filled
from tasks.load.run import run_level
from tasks.load.target import Level, Target
from tests.load.streaming_server import Behaviour, StreamingServer

TALK = Workload(
    name="talk",
    dataset="conversations",
    turns=3,
    input_len=8,
    output_len=4,
    concurrency=[2],
    requests=12,
    warmup_requests=0,
)
ANSWER = " fox" * 4


async def talk(backend="sglang", behaviour=None, **how):
    async with StreamingServer(behaviour or Behaviour()) as server:
        target = Target(server.url, backend)
        result = await run_level(target, TALK, Level(concurrency=2), seed=1, repeat=0, **how)
    return result, [generation.body for generation in server.generations]


def said(body) -> list[str]:
    """What a request says, turn by turn."""
    if "messages" in body:
        assert [message["role"] for message in body["messages"]][:2] in (
            ["user"],
            ["user", "assistant"],
        )
        return [message["content"] for message in body["messages"]]
    return (body.get("text") or body["prompt"]).split("\n\n")


@pytest.mark.parametrize("backend", ["sglang", "openai", "openai-chat"])
async def test_each_turn_holds_the_earlier_ones_and_their_answers(backend):
    result, bodies = await talk(backend)
    assert all(record.outcome is RequestOutcome.FINISHED for record in result.records)
    assert sorted(len(said(body)) for body in bodies) == [1] * 4 + [3] * 4 + [5] * 4
    for body in bodies:
        turns = said(body)
        assert turns[1::2] == [ANSWER] * (len(turns) // 2)
        if len(turns) > 1:  # the turn before had been asked already
            assert turns[:-2] in [said(earlier) for earlier in bodies[: bodies.index(body)]]
    spans = sorted((record.sent_ns, record.end_ns, record.index) for record in result.records)
    for conversation in range(4):
        own = [span for span in spans if span[2] // 3 == conversation]
        assert [index % 3 for _, _, index in own] == [0, 1, 2]
        assert all(end <= sent for (_, end, _), (sent, _, _) in pairwise(own))
    assert result.metrics["max_concurrent_requests"] == 2


async def test_processes_share_whole_conversations():
    result, bodies = await talk(processes=2)
    assert (result.client["processes"], result.metrics["completed"]) == (2, 12)
    assert sorted(len(said(body)) for body in bodies) == [1] * 4 + [3] * 4 + [5] * 4


async def test_a_conversation_whose_turn_failed_goes_no_further():
    result, bodies = await talk(behaviour=Behaviour(faults={0: "500"}))
    assert len(bodies) == 10
    assert (result.metrics["failed"], result.client["unsent"]) == (1, 2)
    assert "1 of 10 requests failed (1 http_error)" in result.verdict.reasons[0]


def streamed(*events: dict[str, object]) -> bytes:
    data = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    cut = len(data) // 2  # the framing cuts where it likes
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:cut], data[cut:]))
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n\r\n"


def test_the_answer_is_the_text_whether_repeated_or_in_increments():
    assert answer_of(streamed({"text": "a"}, {"text": "ab"}, {"text": "abc"})) == "abc"
    assert answer_of(streamed({"text": "the"}, {"text": " cat"})) == "the cat"
    chat = [{"choices": [{"delta": {"content": word}}]} for word in ("x", "y")]
    assert answer_of(streamed(*chat, {"choices": [], "usage": {}})) == "xy"
    assert answer_of(b"HTTP/1.1 500 X\r\n\r\n{}") is None
    assert answer_of(b"HTTP/1.1 200 OK\r\n\r\ndata: {nonsense\n\n") is None


def test_an_answer_is_fed_back_letter_by_letter():
    template = b'POST / HTTP/1.1\r\nHost: x\r\n\r\n{"text":"a%bb%bc"}' % (GAP, GAP)
    head, _, body = filled(template, ['"\n', "\u00e9"]).partition(b"\r\n\r\n")
    assert json.loads(body) == {"text": 'a"\nb\u00e9c'}
    assert head.endswith(b"\r\nContent-Length: %d" % len(body))
