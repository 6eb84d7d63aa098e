"""The judge of a server's answers, on numbers worked by hand."""

import pytest

from settings.sweep import Canary
from tasks.domain.answer import Answer
from tasks.server.canary import agreement_of, judge

CANARY = Canary()


def said(text: str = "", *tokens: int, error: str = "") -> Answer:
    return Answer("The capital of France is", text, tokens, error)


@pytest.mark.parametrize(
    ("mine", "theirs", "share"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4), 1.0),
        ((1, 2, 3, 4), (1, 2, 9, 4), 0.5),
        ((9, 2, 3, 4), (1, 2, 3, 4), 0.0),
        ((1, 2), (1, 2, 3, 4), 0.5),
        ((1, 2, 3, 4), (1,), 0.25),
        ((), (1, 2), 0.0),
        ((), (), 1.0),
    ],
)
def test_the_share_of_leading_tokens(mine: tuple[int, ...], theirs: tuple[int, ...], share: float):
    assert agreement_of([said("", *mine)], [said("", *theirs)]) == share
    assert agreement_of([said("", *theirs)], [said("", *mine)]) == share


def test_words_where_there_are_no_tokens_and_the_mean_over_the_prompts():
    mine = [said(" Paris, of  course"), said("one two three four")]
    theirs = [said("Paris, of course"), said("one two 3 four")]
    assert agreement_of(mine, theirs) == 0.75
    assert agreement_of([], []) == 1.0


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (said("Paris is nice", 1, 2, 3), ""),
        (said(error="HTTP 500: x"), "no answer to 'The capital of France is': HTTP 500: x"),
        (said(), "an empty answer to 'The capital of France is'"),
        (said("   "), "an empty answer to 'The capital of France is'"),
        (said("!!!!", *[0] * 8), "one token in a loop for 'The capital of France is': '!!!!'"),
        (said("!!!", *[0] * 3), ""),
        (said("!!!!!!!", *range(7)), "no word in the answer to {prompt}: '!!!!!!!'"),
        (said("nan nan", *range(4)), "NaN for {prompt}: 'nan nan'"),
        (said("a\ufffd"), ""),
        (said("\ufffd" * 4), "bytes that are no text for {prompt}: '\ufffd\ufffd\ufffd\ufffd'"),
        (said("x", *[0] * 9, 1), ""),  # 90 % is still allowed
        (said("x", *[0] * 10, 1), "one token in a loop for 'The capital of France is': 'x'"),
        (said("no " * 8), f"one token in a loop for 'The capital of France is': {'no ' * 8!r}"),
        (said("x", *[1, 2] * 12), "2 tokens in a loop for {prompt}: 'x'"),
        (said("x", 5, 6, 7, 8, *[1, 2, 3, 4] * 5), "4 tokens in a loop for {prompt}: 'x'"),
        (said("x", *[1, 2, 3, 4] * 3), ""),  # three rounds may be an enumeration
        (said("x", *[1, 2] * 6, *range(20, 32)), ""),  # it found its way out
    ],
)
def test_an_answer_on_its_own(answer: Answer, fault: str):
    report = judge([answer], None, CANARY)
    expected = fault.replace("{prompt}", "'The capital of France is'")
    assert (report.fault, report.ok, report.agreement) == (expected, not fault, None)


def test_the_first_answer_is_the_reference_of_those_that_follow():
    first = judge([said("a", 1, 2, 3, 4)], None, CANARY)
    assert first.ok
    half = judge([said("b", 1, 2, 8, 9)], first.answers, CANARY)
    assert (half.ok, half.agreement) == (True, 0.5)
    less = judge([said("c", 1, 8, 9, 9)], first.answers, CANARY)
    assert (less.ok, less.agreement) == (False, 0.25)
    assert less.fault == (
        "its answers agree with the baseline's in 25% of the tokens, below 50%: 'c'"
    )
    strict = judge([said("b", 1, 2, 8, 9)], first.answers, Canary(agreement=0.6))
    assert not strict.ok
    never = judge([said("z", 7)], first.answers, Canary(agreement=0))
    assert (never.ok, never.agreement) == (True, 0.0)


def test_a_degenerate_answer_is_named_before_a_disagreement():
    report = judge([said("a", 1), said(error="x")], [said("b", 2), said("c", 3)], CANARY)
    assert report.fault.startswith("no answer to")
    assert report.agreement == 0.0
