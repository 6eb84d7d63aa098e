"""Ask a server fixed prompts before it is measured: fast but wrong is wrong."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from settings.sweep import Canary
from tasks.domain.answer import Answer
from tasks.server.http import complete

_TIMEOUT_S = 300.0
_LOOP_SHARE = 0.9


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
    """What is wrong with one answer on its own: no answer, nothing, or one token in a loop."""
    if answer.error:
        return f"no answer to {answer.prompt!r}: {answer.error}"
    tokens = _tokens(answer)
    if not tokens:
        return f"an empty answer to {answer.prompt!r}"
    most = Counter(tokens).most_common(1)[0][1]
    if len(tokens) >= 8 and most / len(tokens) > _LOOP_SHARE:
        return f"one token in a loop for {answer.prompt!r}: {_shown(answer)}"
    return ""


def _tokens(answer: Answer) -> Sequence[object]:
    """The token ids, or the words where the server gives no ids."""
    return answer.token_ids or answer.text.split()


def _shown(answer: Answer) -> str:
    return repr(answer.text[:60])
