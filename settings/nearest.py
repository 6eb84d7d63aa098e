"""The nearest valid name to one that was mistyped."""

import difflib
from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Find the valid name that is most like `name`, or None when none is near."""
    matches = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None


def suggest(name: str, valid: Iterable[str]) -> str:
    """Say `; did you mean 'x'?`, or nothing when no valid name is near."""
    match = nearest(name, valid)
    return f"; did you mean {match!r}?" if match else ""
