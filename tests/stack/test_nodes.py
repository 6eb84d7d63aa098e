"""A stack on several hosts: fit where each host's is, and what isn't alike is told."""

from dataclasses import replace

from tasks.domain.facts import Finding, Severity, StackReport
from tasks.stack.fingerprint import fingerprint
from tasks.stack.nodes import joined
from tests.stack.factory import SOUND


def report(host: str, *findings: Finding, **changes: object) -> StackReport:
    found = replace(SOUND, **changes)
    return StackReport(host, "python3", fingerprint(found), found, findings)


def test_hosts_that_are_alike_have_one_fingerprint_and_nothing_to_tell():
    alone = report("a")
    assert joined([alone]) is alone
    both = joined([alone, report("b")])
    assert (both.fingerprint, both.findings, both.host) == (alone.fingerprint, (), "a")


def test_a_fault_of_a_peer_rules_the_stack_out_and_names_the_peer():
    fault = Finding(Severity.ERROR, "torch sees none of the 8 GPUs", "", "", "driver-not-visible")
    both = joined([report("a"), report("b", fault)])
    assert not both.fit
    assert [finding.summary for finding in both.findings] == ["b: torch sees none of the 8 GPUs"]


def test_what_differs_is_a_warning_and_another_fingerprint():
    other = report("b", torch={**SOUND.torch, "nccl": "2.19.3"}, python_version="3.12.1")
    both = joined([report("a"), other])
    assert both.fit
    [warning] = both.findings
    assert warning.summary == "the nodes a and b aren't alike"
    assert f"python {SOUND.python_version} against 3.12.1" in warning.evidence
    assert "torch's nccl" in warning.evidence
    assert both.fingerprint not in (report("a").fingerprint, other.fingerprint)
    assert joined([report("a"), other]).fingerprint == both.fingerprint
