"""Ask a server fixed prompts before it is measured: fast but wrong is wrong."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from settings.sweep import Canary
from tasks.domain.answer import Answer
from tasks.server.http import complete

_TIMEOUT_S = 300.0
_SHORTEST = 8
"""Tokens below which nothing is called a loop."""
_LONGEST_CYCLE = 6
_ROUNDS = 4
_LOOP_SHARE = 0.6
_TOKEN_SHARE = 0.9
_GARBLED = 4
"""Tokens without a letter or digit, or undecodable bytes in a row, that no answer has."""


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """The answers, how far they agree with the reference (0 to 1), and what is wrong with them."""

    answers: tuple[Answer, ...] = field(repr=False)
    agreement: float | None
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Whether the server may be measured."""
        return not self.fault


async def ask(base_url: str, canary: Canary) -> tuple[Answer, ...]:
    """Generate from each prompt, one after the other, so that batching changes nothing."""
    return tuple(
        [
            await complete(base_url, prompt, canary.max_tokens, _TIMEOUT_S)
            for prompt in canary.prompts
        ]
    )


def judge(
    answers: Sequence[Answer], reference: Sequence[Answer] | None, canary: Canary
) -> CanaryReport:
    """Find what is wrong with the answers; the reference are the baseline's, None at first."""
    fault = next((fault for answer in answers if (fault := _degenerate(answer))), "")
    agreement = None if reference is None else agreement_of(answers, reference)
    if not fault and agreement is not None and agreement < canary.agreement:
        fault = (
            f"its answers agree with the baseline's in {agreement:.0%} of the tokens, "
            f"below {canary.agreement:.0%}: {_shown(answers[0])}"
        )
    return CanaryReport(tuple(answers), agreement, fault)


def agreement_of(answers: Sequence[Answer], reference: Sequence[Answer]) -> float:
    """The mean over the prompts of the share of leading tokens that are the same.

    Greedy decoding goes its own way after the first token that differs, so only the common
    beginning counts. An empty pair of answers agrees.
    """
    shares = [_common(_tokens(a), _tokens(b)) for a, b in zip(answers, reference, strict=True)]
    return sum(shares) / len(shares) if shares else 1.0


def _common(tokens: Sequence[object], others: Sequence[object]) -> float:
    longest = max(len(tokens), len(others))
    same = 0
    for token, other in zip(tokens, others, strict=False):
        if token != other:
            break
        same += 1
    return same / longest if longest else 1.0


def _degenerate(answer: Answer) -> str:
    """What is wrong with one answer on its own: none, nothing, no text, or tokens in a loop."""
    if answer.error:
        return f"no answer to {answer.prompt!r}: {answer.error}"
    tokens = _tokens(answer)
    if not tokens:
        return f"an empty answer to {answer.prompt!r}"
    if period := looping(tokens):
        what = "one token" if period == 1 else f"{period} tokens"
        return f"{what} in a loop for {answer.prompt!r}: {_shown(answer)}"
    if re.fullmatch(r"(?:\W*nan\b\W*)+", answer.text, re.IGNORECASE):
        return f"NaN for {answer.prompt!r}: {_shown(answer)}"
    if "\ufffd" * _GARBLED in answer.text:
        return f"bytes that are no text for {answer.prompt!r}: {_shown(answer)}"
    if len(tokens) >= _GARBLED and not any(map(str.isalnum, answer.text)):
        return f"no word in the answer to {answer.prompt!r}: {_shown(answer)}"
    return ""


def looping(tokens: Sequence[object]) -> int:
    """How many tokens an answer ends up repeating, 0 for none.

    A loop is a cycle of up to `_LONGEST_CYCLE` tokens that fills most of the answer and comes
    round often enough not to be an enumeration.
    """
    for period in range(1, _LONGEST_CYCLE + 1):
        again = (tokens[i] == tokens[i - period] for i in range(len(tokens) - 1, period - 1, -1))
        looped = sum(1 for _ in takewhile(bool, again)) + period
        often = len(tokens) >= _SHORTEST and looped >= _ROUNDS * period
        if often and looped > _LOOP_SHARE * len(tokens):
            return period
    most = Counter(tokens).most_common(1)[0][1] if tokens else 0
    return 1 if len(tokens) >= _SHORTEST and most > _TOKEN_SHARE * len(tokens) else 0


def _tokens(answer: Answer) -> Sequence[object]:
    """The token ids, or the words where the server gives no ids."""
    return answer.token_ids or answer.text.split()


def _shown(answer: Answer) -> str:
    return repr(answer.text[:60])
