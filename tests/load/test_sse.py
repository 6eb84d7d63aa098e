from tasks.load.sse import timed_events


def events(body: bytes, *marks: int):
    return list(timed_events(body, marks or (len(body),), range(100)))


def test_an_event_arrives_with_its_last_byte():
    body = b"data: one\n\ndata: two\n\n"
    assert events(body, 5, 11, 21, 22) == [(b"one", 1), (b"two", 3)]


def test_several_events_of_one_read_arrive_together():
    body = b"data: one\n\ndata: two\n\n"
    assert events(body) == [(b"one", 0), (b"two", 0)]


def test_an_event_without_its_blank_line_has_not_arrived():
    assert events(b"data: one\n\ndata: tw") == [(b"one", 0)]
    assert events(b"data: one\n") == []
    assert events(b"") == []


def test_lines_may_end_otherwise():
    assert events(b"data: one\r\n\r\ndata: two\r\n\r\n", 13, 26) == [(b"one", 0), (b"two", 1)]
    assert events(b"data: one\r\rdata: two\r\r") == [(b"one", 0), (b"two", 0)]


def test_comments_and_names_are_no_data():
    assert events(b": ping\n\nevent: error\ndata: one\n\nid: 3\n\n") == [(b"one", 0)]


def test_the_space_is_optional_and_lines_are_joined():
    assert events(b"data:one\n\n") == [(b"one", 0)]
    assert events(b"data: one\ndata: two\n\n") == [(b"one\ntwo", 0)]
