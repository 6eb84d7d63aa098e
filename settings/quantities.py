"""Durations as people write them: `90`, `90s`, `15m`, `6h`, `1h30m`."""

import math
import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

_PARTS = re.compile(
    r"(?:(?P<d>\d+(?:\.\d+)?)d)?(?:(?P<h>\d+(?:\.\d+)?)h)?"
    r"(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_YEAR_S = 366 * 86400
_EXPECTED = "expected a duration such as 90s, 15m, 6h or 1h30m"


def parse_duration(value: object) -> float:
    """Read a duration into seconds; a bare number is seconds.

    Raises `ValueError` for anything that isn't a duration of at most a year.
    """
    seconds = _seconds(value)
    if not math.isfinite(seconds):
        raise ValueError(_EXPECTED)
    if seconds > _YEAR_S:
        raise ValueError("a duration is at most a year, 366d")
    return seconds


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    text = str(value).strip().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    match = _PARTS.fullmatch(text)
    if not text or match is None:
        raise ValueError(_EXPECTED)
    parts = match.groupdict()
    return sum(float(number) * _SECONDS[unit] for unit, number in parts.items() if number)


def show_duration(seconds: float) -> str:
    """Write seconds as a person reads them: `45s`, `3m20s`, `1h05m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def write_duration(seconds: float) -> str:
    """Write seconds so that reading them gives the same number: `6h`, `15m`, `90s`, `0.25s`."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{Decimal(repr(seconds)):f}s" if seconds % 1 else f"{seconds:.0f}s"


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    Field(gt=0),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["90s", "15m", "6h"]}),
]
"""Seconds, written as `90s`, `15m`, `6h`."""
