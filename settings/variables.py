"""Environment variables as people write them: 16 and "16" mean the same."""

import re
from typing import Annotated

from pydantic import BeforeValidator

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variable_text(value: object) -> str:
    """The text of a variable's value; a switch is written as YAML and TOML write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def variable_name_fault(name: str) -> str:
    """Why no shell can export a variable of this name, or nothing."""
    if _NAME.fullmatch(name):
        return ""
    return f"{name!r} is no variable's name: letters, digits and _, no digit at first"


def _as_text(value: object) -> object:
    """Read numbers and switches as text; a variable that is null is left out.

    Values are never shown: they may be secrets.
    """
    if not isinstance(value, dict):
        return value
    faults = [fault for name, item in value.items() if (fault := _fault(str(name), item))]
    if faults:
        raise ValueError("\n".join(faults))
    return {str(name): variable_text(item) for name, item in value.items() if item is not None}


def _fault(name: str, value: object) -> str:
    if fault := variable_name_fault(name):
        return fault
    if isinstance(value, str | int | float) or value is None:
        return ""
    return f".{name}: expected text or a number, not a {type(value).__name__}"


Env = Annotated[dict[str, str], BeforeValidator(_as_text)]
"""Variables by name."""
