"""Know a host's stacks before anything is launched there."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from settings.sweep import Sweep
from tasks.domain.facts import Finding, StackFacts, StackReport
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.fingerprint import fingerprint
from tasks.stack.gather import gather_facts, gather_gpus
from tasks.stack.gpu_states import gather_matrix, gather_states

STACKS_AT_ONCE = 2


async def validate(
    host: Host, sweep: Sweep | None = None, stacks: Sequence[str] = ()
) -> list[StackReport]:
    """Report on some stacks, or on each in the host's order of preference and those of an axis.

    Never raises for a stack that is broken; that is what the findings say.
    """
    gate = asyncio.Semaphore(STACKS_AT_ONCE)

    async def ask(stack: str) -> StackFacts:
        async with gate:
            return await gather_facts(host, stack, sweep)

    stacks = stacks or stacks_of(host, sweep)
    gpus, *found = await asyncio.gather(_gpu_facts(host), *map(ask, stacks))
    judged = []
    for stack, alone in zip(stacks, found, strict=True):
        facts = replace(alone, **gpus)
        findings = check_stack(facts, sweep)
        judged.append(StackReport(host.name, stack, fingerprint(facts), facts, findings))
    return judged


async def _gpu_facts(host: Host) -> dict[str, Any]:
    """What nvidia-smi tells, by the names of the facts; no more questions where it shows none."""
    gpus, error = await gather_gpus(host)
    if not gpus:
        return {"gpus": gpus, "gpus_error": error}
    return {
        "gpus": gpus,
        "gpu_states": await gather_states(host),
        "links": await gather_matrix(host, "-m"),
        "peers": await gather_matrix(host, "-p2p", "r"),
    }


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
