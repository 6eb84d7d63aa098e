"""Reports on stacks as the Prefect UI shows them."""

from collections.abc import Iterator, Sequence

from tasks.domain.facts import StackReport


def findings_markdown(reports: Sequence[StackReport]) -> str:
    """A section a stack: verdict, fingerprint, findings with their way out."""
    return "\n".join(line for report in reports for line in _section(report))


def _section(report: StackReport) -> Iterator[str]:
    verdict = "can serve" if report.fit else "can **not** serve"
    yield f"## `{report.stack}` {verdict}\n"
    yield f"Fingerprint `{report.fingerprint}`.\n"
    for finding in report.findings:
        yield f"- **{finding.severity}** {finding.summary}"
        if finding.evidence:
            yield f"  - seen: `{finding.evidence}`"
        if finding.fix:
            yield f"  - way out: {finding.fix}"
    yield ""
