"""What the UI is shown of a launch: a bounded share of its log, and how far it is."""

import pytest

from tasks.domain.progress import Progress
from tasks.server.showing import LONGEST_LINE, Heard, Trickle, share_done


def numbered(first: int, last: int) -> list[str]:
    return [f"line {n}" for n in range(first, last + 1)]


def test_a_short_log_comes_through_whole():
    trickle = Trickle(burst=10, per_s=1.0)
    assert list(trickle.through(numbered(1, 4), now=0.0)) == numbered(1, 4)
    assert list(trickle.through(numbered(5, 9), now=0.1)) == numbered(5, 9)


def test_of_a_flood_the_newest_lines_come_through_and_the_rest_is_counted():
    trickle = Trickle(burst=3, per_s=1.0)
    shown = list(trickle.through(numbered(1, 100), now=0.0))
    assert shown == ["… 97 lines left out, they are in server.log", *numbered(98, 100)]


def test_the_rate_is_bounded_and_what_was_left_out_meanwhile_is_told():
    trickle = Trickle(burst=2, per_s=0.5)
    list(trickle.through(numbered(1, 2), now=0.0))
    assert list(trickle.through(numbered(3, 9), now=1.0)) == []
    assert list(trickle.through(numbered(10, 10), now=2.0)) == [
        "… 7 lines left out, they are in server.log",
        "line 10",
    ]
    assert len(list(trickle.through(numbered(11, 99), now=1000.0))) == 3, "two lines and a word"


def test_the_last_lines_come_through_however_many_there_were_before():
    trickle = Trickle(burst=2, per_s=0.0)
    list(trickle.through(numbered(1, 50), now=0.0))
    trickle.allow(20)
    assert list(trickle.through(numbered(51, 53), now=1.0)) == numbered(51, 53)


def test_a_very_long_line_is_cut():
    [line] = Trickle().through(["x" * 9000], now=0.0)
    assert len(line) == LONGEST_LINE + 2


def test_lines_are_whole_however_the_log_arrives():
    heard = Heard()
    for part in ("load", "ing\n\nwei", "ghts\nserv"):
        heard.take_in(Progress("launch", log=part))
    assert heard.lines() == ["loading", "weights"]
    assert heard.lines() == []
    assert heard.lines(to_the_end=True) == ["serv"]
    assert heard.lines(to_the_end=True) == []


def test_a_message_is_not_taken_for_progress():
    heard = Heard()
    heard.take_in(Progress("launch", detail="weights"))
    heard.take_in(Progress("launch", message="a line that stays"))
    assert heard.progress is not None
    assert heard.progress.detail == "weights"


@pytest.mark.parametrize(
    ("expected_s", "heard", "waited_s", "share"),
    [
        (100.0, None, 25.0, 25.0),
        (100.0, Progress("launch", fraction=0.1), 250.0, 99.0),
        (None, Progress("launch", fraction=0.37), 9.0, 37.0),
        (None, Progress("launch"), 9.0, 0.0),
        (None, None, 9.0, 0.0),
    ],
)
def test_the_share_is_of_earlier_launches_or_else_of_the_phase(expected_s, heard, waited_s, share):
    assert share_done(expected_s, heard, waited_s) == pytest.approx(share)
