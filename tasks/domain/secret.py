"""Which variables hold what nobody is to read in a page, a report or a log."""

import re

_SECRET = re.compile(r"(?i)(?:TOKEN|SECRET|PASSWORD|PASSPHRASE|API_?KEY)\b")


def is_secret(name: str) -> bool:
    """Tell a variable whose value is a secret, by its name."""
    return bool(_SECRET.search(name))
