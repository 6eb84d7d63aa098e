from pathlib import Path

import pytest

from tasks.load.sse import timed_events
from tasks.load.tokens import message_of, spread, trace_tokens

RECORDED = Path(__file__).with_name("recorded")
"""Answers of the real SGLang, of two versions, to a tiny random model."""


def trace_of(name: str, backend):
    """Read a recorded answer as if each event had come in a read of its own, at 1, 2, 3 …"""
    body = (RECORDED / name).read_bytes()
    marks = [at + 2 for at in range(len(body)) if body.startswith(b"\n\n", at)]
    return trace_tokens(backend, timed_events(body, marks, range(1, len(marks) + 1)))


def trace(backend, *events: bytes):
    return trace_tokens(backend, [(event, number) for number, event in enumerate(events, 1)])


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_generate(version):
    seen = trace_of(f"generate-{version}.txt", "sglang")
    assert seen.counts == list(range(1, 13))
    assert seen.arrivals == list(range(1, 13))
    assert seen.done_ns == 13
    assert (seen.prompt_tokens, seen.completion_tokens, seen.cached_tokens) == (4, 12, 0)
    assert seen.finish_reason == "length"
    assert (seen.error, seen.fault, seen.verify_steps) == (None, None, None)


def test_the_first_text_may_come_after_the_first_token():
    assert trace_of("generate-0.5.23.txt", "sglang").first_text_ns == 9


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_completions_count_chunks_and_empty_texts_too(version):
    seen = trace_of(f"completions-{version}.txt", "openai")
    assert seen.counts == list(range(1, 11))
    assert (seen.arrivals[0], seen.first_text_ns) == (1, 2)
    assert (seen.prompt_tokens, seen.completion_tokens) == (3, 10)
    assert seen.finish_reason == "length"
    assert seen.done_ns == 12


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_chat_whose_tokens_all_came_in_one_chunk(version):
    seen = trace_of(f"chat-{version}.txt", "openai-chat")
    assert (seen.arrivals, seen.counts) == ([2], [10])
    assert (seen.first_text_ns, seen.done_ns) == (2, 5)
    assert (seen.prompt_tokens, seen.completion_tokens) == (17, 10)


def generated(count: int, text: str = " fox", reason: str = "null", more: str = "") -> bytes:
    meta = f'"finish_reason":{reason},"prompt_tokens":7,"completion_tokens":{count}{more}'
    return f'{{"text":"{text}","meta_info":{{{meta}}}}}'.encode()


def test_speculative_chunks_are_counted_by_tokens():
    last = generated(9, reason='{"type":"length"}', more=',"spec_verify_ct":3')
    seen = trace("sglang", generated(1), generated(4), generated(8), last, b"[DONE]")
    assert (seen.arrivals, seen.counts) == ([1, 2, 3, 4], [1, 4, 8, 9])
    assert seen.verify_steps == 3


def test_incremental_text_counts_the_same():
    seen = trace("sglang", generated(1, "a"), generated(3, "b"), generated(4, ""))
    assert (seen.counts, seen.first_text_ns) == ([1, 3, 4], 1)


def test_an_event_without_a_new_token_is_no_row():
    seen = trace("sglang", generated(1), generated(1), generated(2))
    assert (seen.arrivals, seen.counts) == ([1, 3], [1, 2])


def test_a_text_that_speaks_of_completion_tokens_does_not_count():
    text = r"\"completion_tokens\": 99}"
    seen = trace("sglang", generated(1), generated(2, text), generated(3, text))
    assert seen.counts == [1, 2, 3]


def test_an_event_with_spaces_and_other_fields_after_the_count():
    event = b'{"text": "a", "meta_info": {"completion_tokens": 2, "dp_rank": null}, "index": 0}'
    assert trace("sglang", generated(1), event).counts == [1, 2]


def test_a_matched_stop_is_told_and_an_abort_is_an_error():
    stop = '{"type":"stop","matched":"NaN happened"}'
    assert trace("sglang", generated(1, reason=stop)).finish_reason == "stop: NaN happened"
    abort = '{"type":"abort","message":"KV cache is full"}'
    assert trace("sglang", generated(1, reason=abort)).error == "KV cache is full"


@pytest.mark.parametrize("backend", ["sglang", "openai", "openai-chat"])
def test_an_error_within_the_stream(backend):
    seen = trace(backend, b'{"error":{"message":"too long","code":400}}', b"[DONE]")
    assert seen.error == "too long"


@pytest.mark.parametrize("backend", ["sglang", "openai", "openai-chat"])
@pytest.mark.parametrize("event", [b"{not json", b"[1]", b"{}}", b"3"])
def test_what_is_not_an_event_is_a_fault(backend, event):
    assert trace(backend, event).fault


def test_a_fault_after_good_events_keeps_them():
    seen = trace("sglang", generated(1), generated(2), b"{not json")
    assert seen.counts == [1, 2]
    assert "not json" in seen.fault


@pytest.mark.parametrize("backend", ["sglang", "openai", "openai-chat"])
def test_no_events(backend):
    seen = trace(backend)
    assert (seen.counts, seen.total, seen.first_text_ns, seen.fault) == ([], 0, None, None)


def delta(text: str, usage: str = "null", key: str = "content") -> bytes:
    choice = f'{{"delta":{{"{key}":"{text}"}},"finish_reason":null}}'
    return f'{{"choices":[{choice}],"usage":{usage}}}'.encode()


def test_reasoning_is_output_too():
    seen = trace("openai-chat", delta(""), delta("hm", key="reasoning_content"), delta("yes"))
    assert (seen.arrivals, seen.counts, seen.first_text_ns) == ([2, 3], [1, 2], 2)


def test_a_usage_in_every_chunk_is_exact():
    seen = trace(
        "openai-chat",
        delta("a", '{"completion_tokens":1}'),
        delta("bcd", '{"completion_tokens":4}'),
        b'{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":2}}',
    )
    assert (seen.arrivals, seen.counts) == ([1, 2], [1, 4])


def test_the_last_usage_corrects_the_count_by_chunk():
    usage = (
        b'{"choices":[],"usage":{"completion_tokens":8,"prompt_tokens":2,'
        b'"prompt_tokens_details":{"cached_tokens":1}}}'
    )
    seen = trace("openai-chat", delta("a"), delta("b"), delta("c"), usage)
    assert seen.counts == [2, 5, 8]
    assert seen.cached_tokens == 1


def test_without_any_usage_the_chunks_count():
    seen = trace("openai-chat", delta("a"), delta("b"))
    assert (seen.counts, seen.completion_tokens) == ([1, 2], None)


@pytest.mark.parametrize(
    ("total", "chunks", "counts"),
    [(3, 3, [1, 2, 3]), (4, 3, [1, 2, 4]), (1, 3, [1, 1, 1]), (5, 1, [5]), (5, 0, [])],
)
def test_spreading(total, chunks, counts):
    assert spread(total, chunks) == counts


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"too long","code":400}}', "too long"),
        (b'{"object":"error","message":"no such model"}', "no such model"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"msg":"field required"}]}', '[{"msg":"field required"}]'),
        (b"<html>\n  bad gateway</html>", "<html> bad gateway</html>"),
        (b"", ""),
        (b'{"code":3}', '{"code":3}'),
    ],
)
def test_the_servers_own_words(body, message):
    assert message_of(body) == message


def test_words_are_not_endless():
    assert len(message_of(b"x" * 5000)) == 300
