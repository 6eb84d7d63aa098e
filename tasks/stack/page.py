"""Reports on stacks as the Prefect UI shows them, for a person who has nothing but that page."""

from collections.abc import Iterator, Sequence

from tasks.domain.facts import Finding, Severity, StackReport
from tasks.stack.render import fact_lines

_HEADINGS = {
    Severity.ERROR: "What forbids a launch",
    Severity.WARNING: "What may spoil one",
    Severity.INFO: "Good to know",
}
_LONGEST_EVIDENCE = 600


def findings_markdown(reports: Sequence[StackReport]) -> str:
    """Say which stack would serve, then a section a stack: findings, and what it consists of."""
    return "\n".join(
        [_verdict(reports), "", *(line for each in reports for line in _section(each))]
    )


def _verdict(reports: Sequence[StackReport]) -> str:
    fit = [report.stack for report in reports if report.fit]
    if fit:
        return f"**{code(fit[0])} can serve** and would be taken."
    return "**No stack can serve: nothing would be launched.** The ways out are below."


def _section(report: StackReport) -> Iterator[str]:
    verdict = "can serve" if report.fit else "can **not** serve"
    yield f"## {code(report.stack)} {verdict}\n"
    for severity, heading in _HEADINGS.items():
        found = [finding for finding in report.findings if finding.severity is severity]
        if found:
            yield f"### {heading}\n"
            for finding in found:
                yield from _finding(finding)
            yield ""
    if not report.findings:
        yield "Nothing to complain of.\n"
    yield from _facts(report)


def _finding(finding: Finding) -> Iterator[str]:
    mode = f" ({code(finding.mode)})" if finding.mode else ""
    yield f"- **{plain(finding.summary)}**{mode}"
    if finding.evidence:
        yield f"  - seen: {code(finding.evidence[:_LONGEST_EVIDENCE])}"
    if finding.fix:
        yield f"  - way out: {plain(finding.fix)}"


def _facts(report: StackReport) -> Iterator[str]:
    """What the stack consists of; of one that can't be run nothing is known."""
    yield "### What it is\n"
    yield "| | |"
    yield "| --- | --- |"
    yield f"| fingerprint | {code(report.fingerprint)} |"
    if not report.facts.error:
        for name, value in fact_lines(report.facts):
            yield f"| {name} | {plain(value).replace('|', chr(92) + '|')} |"
    yield ""


def code(text: str) -> str:
    """A text in a code span, whatever back-ticks and line ends it has itself."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in _runs(line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _runs(text: str) -> list[str]:
    return "".join(sign if sign == "`" else " " for sign in text).split()


def plain(text: str) -> str:
    """A text in which nothing is taken for markup."""
    marked = "\\`*_[]<>"
    return "".join(f"\\{sign}" if sign in marked else sign for sign in " ".join(text.split()))
