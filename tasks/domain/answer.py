"""What a server answered to a fixed prompt."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server generated for one prompt, greedily; `error` where it did not answer."""

    prompt: str
    text: str
    token_ids: tuple[int, ...] = ()
    error: str = ""
