"""Whole logs of the real SGLang on a CPU; the mode that each must give is its name's first part."""

from pathlib import Path

import pytest

from tasks.failures.diagnosis import diagnose, diagnose_lines
from tasks.failures.fatal import fatal_line

LOGS = sorted((Path(__file__).parent / "data" / "logs").glob("*.log"))
FATAL_AT_LEAST_ONCE = {"spec-kernel-missing", "flag-bad-choice", "flag-unknown", "port-in-use-http"}


def expected(path: Path) -> str | None:
    mode = path.name.split(".")[0]
    return None if mode == "healthy" else mode


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_mode_of_a_whole_log(path: Path):
    diagnosis = diagnose(path.read_text("utf-8", errors="replace"), None)
    assert (diagnosis and diagnosis.mode) == expected(path)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_lines_one_by_one_give_the_same(path: Path):
    text = path.read_text("utf-8", errors="replace")
    assert diagnose_lines(iter(text.splitlines(keepends=True)), None) == diagnose(text, None)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_evidence_is_where_it_says(path: Path):
    lines = path.read_text("utf-8", errors="replace").split("\n")
    diagnosis = diagnose("\n".join(lines), None)
    for evidence in diagnosis.evidence if diagnosis else ():
        assert evidence.text[:40] in lines[evidence.line - 1]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_fatal_lines(path: Path):
    fatal = [line for line in path.read_text("utf-8").split("\n") if fatal_line(line)]
    if expected(path) is None:
        assert not fatal
    if expected(path) in FATAL_AT_LEAST_ONCE:
        assert fatal
