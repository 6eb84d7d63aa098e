"""How an attempt is put before a person."""

from collections.abc import Awaitable, Callable

from tasks.domain.configuration import Attempt

Page = Callable[[Attempt, str], Awaitable[str]]
"""A Markdown page on a failed attempt, from its log: cause, evidence, cure, command."""
