"""The page of a validation in the Prefect UI."""

from dataclasses import replace

from tasks.domain.facts import Finding, Severity, StackFacts, StackReport
from tasks.stack.page import code, findings_markdown, plain
from tests.stack.factory import SOUND

ERROR = Finding(
    Severity.ERROR,
    "sgl_kernel can't be imported: it was built against another torch (c10::f(char*) is missing)",
    "ImportError: x.so: undefined symbol: `_Z1f`\nand a second line",
    "install the build for the installed torch",
    "abi-undefined-symbol",
)


def report(*findings: Finding, facts: StackFacts = SOUND) -> StackReport:
    return StackReport("box", "/v/bin/python3", "0123456789ab", facts, findings)


def test_the_first_line_says_whether_anything_would_be_launched() -> None:
    sound, broken = report(), replace(report(ERROR), stack="/old/python3")
    assert findings_markdown([broken, sound]).startswith("**`/v/bin/python3` can serve**")
    assert findings_markdown([broken]).startswith("**No stack can serve: nothing would be launched")


def test_a_finding_has_its_mode_its_evidence_and_its_way_out() -> None:
    page = findings_markdown([report(ERROR)])
    assert "### What forbids a launch" in page
    assert "char\\*" in page
    assert "(`abi-undefined-symbol`)" in page
    assert "  - seen: ``ImportError: x.so: undefined symbol: `_Z1f` and a second line``" in page
    assert "  - way out: install the build for the installed torch" in page
    assert "| torch | cuda 13.0, cudnn 91600, nccl 2.28.9 |" in page
    assert "What may spoil one" not in page


def test_a_stack_that_can_not_be_run_has_a_page_too() -> None:
    facts = StackFacts("/v/bin/python3", "", "", (), error="No such file")
    page = findings_markdown([report(Finding(Severity.ERROR, "no"), facts=facts)])
    assert "| fingerprint | `0123456789ab` |" in page
    assert "| python |" not in page


def test_texts_that_look_like_markup() -> None:
    assert code("a `b` c") == "``a `b` c``"
    assert code("`b`") == "`` `b` ``"
    assert plain("a_b *c* <d>\ne") == "a\\_b \\*c\\* \\<d\\> e"
