"""The page on a sweep's end that the UI shows."""

import shlex
from dataclasses import replace

from tasks.domain.configuration import PeerCommand, TrialVerdict
from tasks.results.command_line import deploy_command
from tasks.results.conclusion import conclude
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.story import story
from tasks.results.view import view
from tests.results import factory
from tests.results.factory import NIGHT, attempt, capture_oom, measured, night, trial


def told(*trials) -> str:
    record = SweepRecord(
        "20261130T020000Z-kimi-ab12", factory.sweep(), SweepState.RUNNING, NIGHT, None, NIGHT
    )
    stored = StoredSweep(record, trials)
    page = view(stored)
    return story(page, conclude(page), "sweeps/x/report.html")


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    return text[text.index(heading) :].partition("\n#")[0]


def test_the_decision_its_command_and_the_report_are_named():
    text = told(*night())
    head = text.partition("## ")[0]
    assert "CompletedWithFailures" in head
    assert "**best: cuda_graph_max_bs=128 speculative_steps=0: 1,308" in head
    command = head.partition("```sh\n")[2].partition("\n```")[0]
    [best] = [
        r for r in night() if r.trial.axes == {"cuda_graph_max_bs": 128, "speculative_steps": 0}
    ]
    assert shlex.split(command.replace("\\\n", "")) == shlex.split(deploy_command(best) or "")
    assert "\n  --cuda-graph-max-bs 128 \\\n" in command
    assert text.rstrip().endswith("`sweeps/x/report.html`")


def test_the_command_of_a_server_over_several_hosts_has_every_node():
    [best] = [
        r for r in night() if r.trial.axes == {"cuda_graph_max_bs": 128, "speculative_steps": 0}
    ]
    peer = PeerCommand("second", ("python3", "--node-rank", "1"), {"NCCL_PROTO": "LL"})
    launches = tuple(replace(attempt, peers=(peer,)) for attempt in best.attempts)
    text = told(replace(best, attempts=launches))
    assert "# on second:\nNCCL_PROTO=LL \\\n  python3 \\\n  --node-rank 1\n```" in text


def test_each_cause_is_told_once_with_outcome_cure_evidence_and_where_to_read_on():
    text = told(*night())
    assert text.count("### ") == 2
    cured = section(text, "### cudnn-conv3d-check")
    assert "cured: launch 2 served (one launch, in start)" in cured
    assert "SGLANG_DISABLE_CUDNN_CHECK=1" in cured
    failed = next(r for r in night() if r.attempts and r.attempts[0].diagnosis)
    key = f"launch-failed-{failed.trial.trial_id}"
    assert f"[{key}](../key/{key})" in cured
    pruned = section(text, "### oom-graph-capture")
    assert "cuda_graph_max_bs=256 speculative_steps=0 (pruned)" in pruned


def test_launches_of_one_cause_with_different_ends_are_one_section():
    wanted = trial(cuda_graph_max_bs=256, speculative_steps=0)
    retried = replace(capture_oom(), action="retry")
    launches = tuple(
        attempt(wanted, number, ready_s=None, diagnosis=diagnosis)
        for number, diagnosis in ((1, retried), (2, capture_oom()))
    )
    result = replace(measured(wanted), attempts=launches, verdict=TrialVerdict.PRUNED, levels=())
    text = told(measured(trial(baseline=True, cuda_graph_max_bs=64), 10.0, 11.0), result)
    assert text.count("### oom-graph-capture") == 1
    assert "launched again, failed again; pruned" in text
    assert "(2 launches," in text


def test_what_was_refused_without_a_failure_is_told_with_the_reason():
    refused = section(told(*night()), "## What was refused")
    assert "| cuda_graph_max_bs=128 speculative_steps=3 | incorrect | 2 of 3 canary" in refused
    assert "| pruned | not launched: cuda_graph_max_bs=256 speculative_steps=0 ran out" in refused


def test_what_a_log_says_can_neither_end_a_block_nor_a_table():
    evil = "```\n# owned | x"
    wanted = trial(baseline=True, cuda_graph_max_bs=64)
    oom = capture_oom()
    evidence = (replace(oom.evidence[0], text=evil),)
    launches = (attempt(wanted, 1, ready_s=None, diagnosis=replace(oom, evidence=evidence)),)
    pruned = replace(measured(wanted), attempts=launches, verdict=TrialVerdict.PRUNED, levels=())
    wrong = replace(
        measured(trial(cuda_graph_max_bs=128)), verdict=TrialVerdict.INCORRECT, reason=evil
    )
    text = told(pruned, wrong)
    assert "````text" in text
    assert "owned \\| x" in section(text, "## What was refused")


def test_a_sweep_without_a_best_says_so():
    text = told(replace(measured(trial()), verdict=TrialVerdict.PRUNED, levels=(), reason="x"))
    assert "no configuration can be recommended" in text
    assert "```sh" not in text
