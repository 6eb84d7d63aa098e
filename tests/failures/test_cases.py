"""Cases from public reports and our own messages: a new case is a line of a file, not code."""

import json
import random
from pathlib import Path

import pytest

from tasks.failures.diagnosis import diagnose
from tasks.failures.fatal import fatal_line

DATA = Path(__file__).parent / "data"


def read(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


REPORTS = read("cases.jsonl")
MESSAGES = read("messages.jsonl")
WORDINGS = read("wordings.jsonl")
"""Other versions' and other programs' words for the same, and more that is harmless."""
HEALTHY = [case for case in (*REPORTS, *MESSAGES, *WORDINGS) if case["mode"] is None]
NOISE = [
    line
    for case in REPORTS
    if case["mode"] is None
    for line in case["log"].splitlines()
    if line.strip()
]
MISSES = {
    # The message alone; only the outcomes of two launches together say that no value fits.
    "case-27423a3c": "one launch can't know that no memory fraction is feasible",
    # It is to be tried once more and given up then; what was tried isn't in the log.
    "case-9d805623": "a single illegal memory access is worth one more launch",
}


def bury(log: str, seed: str, after: bool = False) -> str:
    rng = random.Random(seed)
    noise = [rng.choice(NOISE) for _ in range(rng.randint(200, 600))]
    # A launch can't get ready after it failed, nor end in the middle of a build.
    behind = [line for line in noise if "fired up" not in line and "JIT" not in line]
    return "\n".join([*noise, log, *(behind if after else ())]) + "\n"


def verdict(log: str, case: dict) -> tuple[str | None, str | None]:
    diagnosis = diagnose(log, case.get("exit_code"))
    return (diagnosis.mode, diagnosis.action.value) if diagnosis else (None, None)


def missed(case: dict) -> list[pytest.MarkDecorator]:
    return [
        pytest.mark.xfail(strict=True, reason=reason)
        for known, reason in MISSES.items()
        if case["id"] == known
    ]


ALL = [pytest.param(case, id=case["id"], marks=missed(case)) for case in (*REPORTS, *MESSAGES)]


@pytest.mark.parametrize("case", [*ALL, *(pytest.param(case, id=case["id"]) for case in WORDINGS)])
def test_a_bare_excerpt(case: dict):
    assert verdict(case["log"], case) == (case["mode"], case["action"])


@pytest.mark.parametrize("case", ALL)
def test_an_excerpt_after_hundreds_of_healthy_lines(case: dict):
    assert verdict(bury(case["log"], case["id"]), case) == (case["mode"], case["action"])


@pytest.mark.parametrize("case", [case for case in REPORTS if case["id"] not in MISSES])
def test_healthy_lines_shuffled_around_change_nothing(case: dict):
    text = bury(case["log"], f"{case['id']} shuffled", after=True)
    assert verdict(text, case) == (case["mode"], case["action"])


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case["id"])
def test_no_line_of_a_healthy_log_is_fatal(case: dict):
    assert not [line for line in case["log"].splitlines() if fatal_line(line)]


def test_the_share_of_right_answers():
    """Both kinds together; the misses above are all there are."""
    right = [verdict(case["log"], case) == (case["mode"], case["action"]) for case in REPORTS]
    assert sum(right) == len(REPORTS) - len(MISSES)
