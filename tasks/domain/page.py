"""How an attempt is put before a person."""

from collections.abc import Awaitable, Callable

from tasks.domain.configuration import Attempt

Page = Callable[[Attempt, str], Awaitable[str]]
"""A Markdown page on a failed attempt, from its log: cause, evidence, cure, command."""


def page_key(trial_id: str) -> str:
    """The key of the page on a trial's failed launches, the same every night."""
    return f"launch-failed-{trial_id}"


def fenced(text: str, language: str = "text") -> str:
    """A Markdown block that no fence inside the text can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
