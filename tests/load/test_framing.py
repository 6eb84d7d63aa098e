"""When does a captured stream know that it has ended?"""

import pytest

from tasks.load.capture.stream import Stream

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\noops"


def fed(*pieces: bytes) -> list[bool]:
    """Feed pieces one by one; after each, whether the stream has ended."""
    stream, seen = Stream(0, 0, b""), []
    for piece in pieces:
        stream.pieces.append(piece)
        seen.append(stream.ended())
    return seen


@pytest.mark.parametrize("raw", [CHUNKED, SIZED])
def test_it_ends_with_its_last_byte_wherever_the_reads_fall(raw):
    assert fed(raw) == [True]
    for at in range(1, len(raw)):
        assert fed(raw[:at], raw[at:]) == [False, True]
    assert fed(*(raw[at : at + 1] for at in range(len(raw)))) == [False] * (len(raw) - 1) + [True]


def test_an_answer_of_no_known_length_ends_with_the_connection():
    assert fed(b"HTTP/1.1 200 OK\r\n\r\n", b"hello", b"0\r\n\r\n") == [False] * 3


def test_a_body_of_no_bytes_ends_with_its_head():
    assert fed(b"HTTP/1.1 204 .\r\nContent-Length: 0\r\n\r\n") == [True]
    assert fed(b"HTTP/1.1 200 .\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == [True]


def test_what_comes_before_the_real_head_is_no_end():
    assert fed(b"HTTP/1.1 100 Continue\r\n\r\n", SIZED) == [False, True]


def test_a_length_that_is_no_number_counts_as_none():
    assert fed(b"HTTP/1.1 200 .\r\nContent-Length: many\r\n\r\nhello") == [False]


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 200 .\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 .\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 .\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
def test_whether_the_connection_is_kept(head, kept):
    stream = Stream(0, 0, b"")
    stream.pieces.append(head)
    assert stream.ended()
    assert stream.keep_alive is kept
