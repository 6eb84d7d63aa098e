"""Durations, by hand and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.quantities import parse_duration, show_duration, write_duration

YEAR_S = 366 * 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90.0),
        ("90", 90.0),
        ("90s", 90.0),
        ("0.5s", 0.5),
        ("15m", 900.0),
        ("6h", 21600.0),
        ("1h30m", 5400.0),
        ("1h 30m 5s", 5405.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
        ("1d1h1m1s", 90061.0),
    ],
)
def test_durations_as_people_write_them(text: object, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "5x", "-5s", "m", "30m1h", "1h1h", "1e3", "inf", "nan", True, None, [5],
     float("inf"), float("-inf"), float("nan"), 10**400, "9" * 400, "9" * 400 + "h", "367d"],
)  # fmt: skip
def test_what_is_no_duration(text: object):
    with pytest.raises(ValueError, match=r"expected a duration such as|at most a year"):
        parse_duration(text)


@given(st.floats(min_value=0, max_value=YEAR_S, allow_subnormal=True))
def test_reading_what_was_written_gives_the_same_number(seconds: float):
    assert parse_duration(write_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=YEAR_S))
def test_whole_seconds_are_written_without_a_fraction(seconds: int):
    written = write_duration(float(seconds))
    assert "." not in written
    assert parse_duration(written) == seconds


@given(
    st.text(max_size=12) | st.from_regex(r"[0-9.]{0,4}[dhms]?[0-9.]{0,4}[dhms]?", fullmatch=True)
)
def test_any_text_is_a_duration_or_a_value_error(text: str):
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 0 <= seconds <= YEAR_S


@pytest.mark.parametrize(
    ("seconds", "written", "shown"),
    [
        (21600.0, "6h", "6h00m"),
        (900.0, "15m", "15m00s"),
        (90.0, "90s", "1m30s"),
        (0.25, "0.25s", "0s"),
        (1e-7, "0.0000001s", "0s"),
        (59.6, "59.6s", "1m00s"),
        (3599.7, "3599.7s", "1h00m"),
        (3900.0, "65m", "1h05m"),
    ],
)
def test_how_a_duration_is_written_and_shown(seconds: float, written: str, shown: str):
    assert write_duration(seconds) == written
    assert show_duration(seconds) == shown
