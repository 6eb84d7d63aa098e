from array import array

import pytest

from tasks.domain.measurement import RequestOutcome
from tasks.load.capture import stream as endings
from tasks.load.captured import Captured
from tasks.load.parse import Asked, to_record

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(count: int, reason: str = "null") -> bytes:
    meta = f'"finish_reason":{reason},"prompt_tokens":7,"completion_tokens":{count}'
    return f'data: {{"text":"a","meta_info":{{{meta}}}}}\n\n'.encode()


LAST = event(2, '{"type":"length","length":2}')


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def parse(*reads: bytes, ending=endings.COMPLETE, error="", paced=False):
    """Parse reads that arrived at 100, 200, 300 … of a request due at 10 and sent at 20."""
    raw = b"".join(reads)
    times = array("q", [100 * number for number in range(1, len(reads) + 1)])
    sizes = array("q", [sum(map(len, reads[:number])) for number in range(1, len(reads) + 1)])
    captured = Captured(5, 10, 20, 9_999, ending, 0, times, sizes, error, raw)
    return to_record(captured, Asked("sglang", (2,) * 9, paced))


def test_a_finished_request():
    record = parse(HEAD, chunk(event(1)), chunk(LAST), chunk(DONE), END)
    assert record.outcome is RequestOutcome.FINISHED
    assert record.error is None
    assert (record.index, record.intended_ns, record.sent_ns) == (5, 20, 20)
    assert (record.first_byte_ns, record.first_text_ns) == (100, 200)
    assert (tuple(record.arrival_ns), tuple(record.cumulative_tokens)) == ((200, 300), (1, 2))
    assert (record.prompt_tokens, record.completion_tokens, record.requested_tokens) == (7, 2, 2)
    assert (record.finish_reason, record.http_status) == ("length", 200)


def test_the_end_is_the_arrival_of_done():
    assert parse(HEAD, chunk(LAST), chunk(DONE), END).end_ns == 300


def test_without_done_the_end_is_the_last_byte():
    record = parse(HEAD, chunk(LAST), END)
    assert (record.outcome, record.end_ns) == (RequestOutcome.FINISHED, 300)


def test_with_a_schedule_the_intended_time_is_the_schedules():
    assert parse(HEAD, chunk(LAST), chunk(DONE) + END, paced=True).intended_ns == 10


def test_done_is_enough_even_if_the_connection_was_then_reset():
    record = parse(HEAD, chunk(LAST), chunk(DONE), ending=endings.RESET, error="reset")
    assert record.outcome is RequestOutcome.FINISHED


@pytest.mark.parametrize(
    ("reads", "ending", "outcome", "error"),
    [
        ([], endings.REFUSED, RequestOutcome.REFUSED, "Connection refused"),
        ([HEAD], endings.TIMEOUT, RequestOutcome.TIMEOUT, "no end after 3 s"),
        ([HEAD], endings.ABANDONED, RequestOutcome.ABANDONED, "stopped"),
        ([], endings.EOF, RequestOutcome.CUT, "no answer: closed"),
        ([HEAD, chunk(event(1))], endings.EOF, RequestOutcome.CUT, "after 1 tokens: closed"),
        ([HEAD, chunk(event(1))], endings.RESET, RequestOutcome.CUT, "after 1 tokens: reset"),
        (
            [HEAD, chunk(event(1)), END],
            endings.COMPLETE,
            RequestOutcome.CUT,
            "after 1 tokens: the stream ended without a finish reason",
        ),
        (
            [b'HTTP/1.1 503 .\r\ncontent-length: 16\r\n\r\n{"error":"full"}'],
            endings.COMPLETE,
            RequestOutcome.HTTP_ERROR,
            "HTTP 503: full",
        ),
        (
            [HEAD, chunk(b'data: {"error":{"message":"too long"}}\n\n'), END],
            endings.COMPLETE,
            RequestOutcome.HTTP_ERROR,
            "in the stream: too long",
        ),
        ([b"SSH-2.0\r\n\r\n"], endings.EOF, RequestOutcome.MALFORMED, "not HTTP"),
        (
            [HEAD, chunk(b"data: {oops\n\n"), END],
            endings.COMPLETE,
            RequestOutcome.MALFORMED,
            "not JSON: b'{oops'",
        ),
        (
            [b"HTTP/1.1 200 .\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"],
            endings.COMPLETE,
            RequestOutcome.MALFORMED,
            "answered in one piece, not as a stream (application/json)",
        ),
        ([HEAD, b"zz\r\n"], endings.EOF, RequestOutcome.MALFORMED, "not HTTP"),
    ],
)
def test_each_failure_has_its_class_and_its_line(reads, ending, outcome, error):
    said = error.rpartition(": ")[2] if outcome is RequestOutcome.CUT else error
    record = parse(*reads, ending=ending, error=said)
    assert record.outcome is outcome
    assert error in record.error
    assert "\n" not in record.error
    assert record.end_ns == 9_999


def test_a_request_that_was_never_sent_has_times_nevertheless():
    captured = Captured(
        0, 10, 0, 99, endings.REFUSED, 0, array("q"), array("q"), "Connection refused", b""
    )
    record = to_record(captured, Asked("sglang", (2,) * 9, paced=False))
    assert (record.intended_ns, record.sent_ns, record.end_ns) == (99, 99, 99)
    assert record.first_byte_ns is None
