"""The stacks of servers over several hosts: fit where every host's is, and alike."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from settings.nodes import at_same_place
from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackReport
from tasks.domain.together import together
from tasks.hosts.host import Host
from tasks.stack.fingerprint import differences, fingerprint_of_all
from tasks.stack.validate import stacks_of, validate


async def validate_nodes(hosts: Sequence[Host], sweep: Sweep | None) -> list[StackReport]:
    """Report on each stack of the first host, together with its like on all others."""
    first = hosts[0].settings
    wanted = stacks_of(hosts[0], sweep)
    reports = await together(
        validate(host, sweep, [at_same_place(stack, first, host.settings) for stack in wanted])
        for host in hosts
    )
    return [joined(each) for each in zip(*reports, strict=True)]


def joined(reports: Sequence[StackReport]) -> StackReport:
    """One report of one stack on several hosts: the first's facts, and everybody's findings."""
    first, *others = reports
    if not others:
        return first
    findings = [*first.findings]
    for other in others:
        findings += [replace(f, summary=f"{other.host}: {f.summary}") for f in other.findings]
        findings += _unlike(first, other)
    together_told = fingerprint_of_all([report.fingerprint for report in reports])
    return replace(first, fingerprint=together_told, findings=tuple(findings))


def _unlike(first: StackReport, other: StackReport) -> Iterator[Finding]:
    """Nodes of one server that differ: what they run can't be called one stack."""
    if found := differences(first.facts, other.facts):
        yield Finding(
            Severity.WARNING,
            f"the nodes {first.host} and {other.host} aren't alike",
            "; ".join(found),
            "install the same versions on both",
        )
