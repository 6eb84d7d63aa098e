import pytest

from tasks.load.response import parse_response

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n"
)


def test_a_body_knows_which_read_brought_what():
    sizes = [len(CHUNKED) - 17, len(CHUNKED) - 5, len(CHUNKED)]
    response = parse_response(CHUNKED, sizes)
    assert response.status == 200
    assert response.content_type == "text/event-stream; charset=utf-8"
    assert response.body == b"hello, world"
    assert response.marks == (5, 12, 12)
    assert response.complete
    assert response.fault is None


@pytest.mark.parametrize("at", range(1, len(CHUNKED)))
def test_the_reads_may_fall_anywhere(at):
    response = parse_response(CHUNKED, [at, len(CHUNKED)])
    assert response.body == b"hello, world"
    assert response.marks[-1] == 12
    assert response.complete


@pytest.mark.parametrize("at", [0, 10, len(CHUNKED) - 20, len(CHUNKED) - 1])
def test_a_stream_that_ends_early_is_not_complete(at):
    assert not parse_response(CHUNKED[:at], [at] if at else []).complete


def test_nothing_at_all():
    response = parse_response(b"", [])
    assert (response.status, response.body, response.marks) == (None, b"", ())


def test_a_body_of_known_length():
    raw = b"HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\noops"
    response = parse_response(raw, [len(raw)])
    assert (response.status, response.body, response.complete) == (500, b"oops", True)
    assert not parse_response(raw[:-1], [len(raw) - 1]).complete


def test_a_body_without_framing_ends_with_the_connection():
    raw = b"HTTP/1.1 200 OK\r\n\r\nhello"
    response = parse_response(raw, [len(raw)])
    assert (response.body, response.complete) == (b"hello", True)


def test_what_comes_before_the_real_head_is_skipped():
    raw = b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED
    response = parse_response(raw, [len(raw)])
    assert (response.status, response.body, response.complete) == (200, b"hello, world", True)


def test_bytes_that_are_not_http_are_a_fault():
    raw = b"SSH-2.0-OpenSSH_9.6\r\n"
    response = parse_response(raw, [len(raw)])
    assert response.status is None
    assert response.fault


def test_a_broken_chunk_is_a_fault_and_keeps_what_came_before():
    raw = CHUNKED[:-5] + b"zz\r\n"
    response = parse_response(raw, [len(CHUNKED) - 5, len(raw)])
    assert response.body == b"hello, world"
    assert response.fault
