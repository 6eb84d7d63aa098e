"""The catalogue holds together, and its page is the one in the repository."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from tasks.domain.diagnosis import Action, Remedy
from tasks.failures.catalogue import BY_NAME, MODES
from tasks.failures.catalogue.entry import Mode
from tasks.failures.page import page

PAGE = Path(__file__).parents[2] / "docs" / "failures.md"
EVERY_MODE = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def remedies(mode: Mode) -> list[Remedy]:
    found = [mode.remedy, *(variant.remedy for variant in mode.variants)]
    return [remedy for remedy in found if remedy]


def test_the_committed_page_is_current():
    written = PAGE.read_text("utf-8")
    assert written == page(), "run `python -m tasks.failures.page docs/failures.md`"


def test_names_are_unique():
    assert len(BY_NAME) == len(MODES)


@EVERY_MODE
def test_patterns_compile(mode: Mode):
    for sign in mode.signs:
        for pattern in (sign.pattern, sign.unless, sign.away, re.sub("<<.*?>>", "x", sign.near)):
            re.compile(pattern)
    for variant in mode.variants:
        re.compile(variant.when)
        re.compile(variant.line)


@EVERY_MODE
def test_a_retry_has_a_remedy_and_nothing_else_has(mode: Mode):
    assert (mode.action is Action.RETRY) == (mode.remedy is not None)
    for variant in mode.variants:
        assert (variant.action is Action.RETRY) == (variant.remedy is not None)


@EVERY_MODE
def test_an_explanation_is_short_and_says_cause_and_cure(mode: Mode):
    for text in (mode.explanation, *(variant.explanation for variant in mode.variants)):
        assert len(text) <= 210
        assert not text or text.endswith(".")


@EVERY_MODE
def test_every_mode_can_be_seen(mode: Mode):
    assert mode.signs or mode.exit_codes or mode.stalls
    assert mode.phases


@EVERY_MODE
def test_placeholders_of_a_remedy_are_captured_somewhere(mode: Mode):
    captured = {
        name
        for pattern in (
            *(sign.pattern for sign in mode.signs),
            *(variant.when for variant in mode.variants),
        )
        for name in re.findall(r"\?P<(\w+)>", pattern)
    }
    for remedy in remedies(mode):
        assert set(re.findall(r"\{(\w+)\}", str(asdict(remedy)))) <= captured


@EVERY_MODE
def test_no_remedy_does_what_needs_a_person(mode: Mode):
    for remedy in remedies(mode):
        assert "trust_remote_code" not in remedy.args
        assert "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK" not in remedy.env


MARKED = {
    "NCCL_NVLS_ENABLE",
    "SGLANG_ENABLE_JIT_DEEPGEMM",
    "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK",
    "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK",
}


@EVERY_MODE
def test_what_changes_the_measurement_is_marked(mode: Mode):
    for remedy in remedies(mode):
        if MARKED & set(remedy.env) or "attention_backend" in remedy.args:
            assert remedy.alters
