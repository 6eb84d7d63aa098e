"""How an attempt is put before a person."""

from collections.abc import Callable

from tasks.domain.configuration import Attempt

Page = Callable[[Attempt], str]
"""A Markdown page on a failed attempt: cause, evidence, cure, command."""
