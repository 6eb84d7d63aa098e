"""Know a host's stacks before anything is launched there."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, replace

from settings.sweep import Sweep
from tasks.domain.facts import Finding, StackReport
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.fingerprint import fingerprint
from tasks.stack.gather import gather_facts, gather_gpus

STACKS_AT_ONCE = 2


async def validate(host: Host, sweep: Sweep | None = None) -> list[StackReport]:
    """Report on each stack in the host's order of preference, then on those that an axis adds.

    Never raises for a stack that is broken; that is what the findings say.
    """
    gpus, gpus_error = await gather_gpus(host)
    gate = asyncio.Semaphore(STACKS_AT_ONCE)

    async def one(stack: str) -> StackReport:
        async with gate:
            facts = await gather_facts(host, stack, sweep)
        facts = replace(facts, gpus=gpus, gpus_error=gpus_error)
        findings = check_stack(facts, sweep)
        return StackReport(host.name, stack, fingerprint(facts), facts, findings)

    return list(await asyncio.gather(*map(one, stacks_of(host, sweep))))


def stacks_of(host: Host, sweep: Sweep | None) -> list[str]:
    """The interpreters to look at, each once."""
    added = sweep.axes.get("stack", []) if sweep else []
    return list(dict.fromkeys([*host.settings.stacks, *map(str, added)]))


def as_json(report: StackReport) -> dict[str, object]:
    """A report as `validate --json` prints it."""
    facts = asdict(report.facts)
    # Every option with its choices is a book; the names are what one compares.
    del facts["options"]
    return {
        "host": report.host,
        "stack": report.stack,
        "fingerprint": report.fingerprint,
        "facts": {**facts, "flags": sorted(report.facts.flags)},
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> Mapping[str, str | None]:
    return {
        "severity": finding.severity.value,
        "mode": finding.mode,
        "summary": finding.summary,
        "evidence": finding.evidence,
        "fix": finding.fix,
    }
