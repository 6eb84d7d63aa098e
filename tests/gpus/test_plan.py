"""Whom a cleaning ends and whom it spares."""

from dataclasses import replace

import pytest

from tasks.gpus.plan import Plan, Policy, Protection, age, name_them, plan_cleanup
from tasks.hosts.host import HostProcess

US = Protection(uid=1000, pids=frozenset({50, 51}))
ROOT = Protection(uid=0)

STRANGER = HostProcess(
    pid=4711,
    start_ticks=1,
    uid=1001,
    user="alice",
    name="python3",
    command="python3 train.py --epochs 3",
    age_s=7300.0,
    mark=None,
    devices=("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"),
)
COLLEAGUE = replace(STRANGER, pid=4712, uid=1000, user="us")
OURS = replace(COLLEAGUE, pid=4713, mark="night-1/abc/1/", launched_here=True)
LEFTOVER = replace(OURS, pid=4714, devices=())


def judged(process: HostProcess, policy: Policy, who: Protection = US) -> Plan:
    return plan_cleanup([process], policy, who)


@pytest.mark.parametrize(
    ("policy", "ended"),
    [
        (Policy.OWN, [4713, 4714]),
        (Policy.USER, [4712, 4713, 4714]),
        (Policy.ALL, [4711, 4712, 4713, 4714]),
    ],
)
def test_each_policy_goes_one_step_further(policy: Policy, ended: list[int]) -> None:
    plan = plan_cleanup([LEFTOVER, OURS, COLLEAGUE, STRANGER], policy, replace(ROOT, uid=1000))
    # As uid 1000 we can't end alice's, whatever the policy.
    may = [pid for pid in ended if pid != STRANGER.pid]
    assert [kill.process.pid for kill in plan.kills] == may
    as_root = plan_cleanup([STRANGER, COLLEAGUE], policy, ROOT)
    assert (len(as_root.kills) == 2) is (policy is Policy.ALL)


def test_a_stranger_is_in_the_way_and_the_reason_says_why() -> None:
    (spare,) = judged(STRANGER, Policy.ALL).blockers
    assert spare.reason == "belongs to alice, and we are not root"
    (spare,) = judged(COLLEAGUE, Policy.OWN).blockers
    assert spare.reason == "belongs to us; the policy is own"


def test_a_marker_of_another_user_s_sweep_is_not_ours() -> None:
    theirs = replace(OURS, uid=1001, user="alice")
    for policy in (Policy.OWN, Policy.USER):
        assert judged(theirs, policy, ROOT).kills == ()


def test_a_marker_of_another_run_folder_s_sweep_is_not_ours() -> None:
    beside = replace(OURS, launched_here=False)
    assert len(judged(beside, Policy.OWN).blockers) == 1
    assert judged(replace(beside, devices=()), Policy.OWN).blockers == ()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("Xorg", "/usr/lib/xorg/Xorg :0"),
        ("nvidia-persiste", "/usr/bin/nvidia-persistenced --user nvpd"),
        ("nv-fabricmanage", "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/fabricmanager.cfg"),
        ("nv-hostengine", "/usr/bin/nv-hostengine -n"),
        ("dcgm-exporter", "/usr/bin/dcgm-exporter"),
        ("nvidia-smi", "nvidia-smi --query-gpu=index"),
        ("gnome-shell", "/usr/bin/gnome-shell"),
        ("nvidia-cuda-mps", "nvidia-cuda-mps-server"),
        ("renamed", "/usr/bin/nv-fabricmanager"),
    ],
)
def test_some_programs_are_never_ended_and_are_in_nobody_s_way(name: str, command: str) -> None:
    for process in (STRANGER, OURS):
        plan = judged(replace(process, name=name, command=command), Policy.ALL, ROOT)
        assert plan.kills == ()
        assert plan.blockers == ()
        assert len(plan.spares) == 1


def test_a_name_that_only_begins_like_a_protected_one_is_ended() -> None:
    process = replace(STRANGER, name="Xtrainer", command="python Xorg.py")
    assert len(judged(process, Policy.ALL, ROOT).kills) == 1


def test_more_programs_can_be_protected() -> None:
    protection = replace(ROOT, names=ROOT.names | {"python3"})
    assert judged(STRANGER, Policy.ALL, protection).kills == ()


@pytest.mark.parametrize("pid", [1, 50, 51])
def test_neither_the_first_process_nor_we_ourselves_are_ended(pid: int) -> None:
    for process in (OURS, COLLEAGUE):
        assert judged(replace(process, pid=pid), Policy.ALL).kills == ()


def test_a_validation_that_is_running_is_waited_for_and_a_stale_one_ended() -> None:
    probe = replace(COLLEAGUE, mark="probe-1f", age_s=30.0)
    assert [spare.reason for spare in judged(probe, Policy.ALL).blockers] == [
        "a validation of ours that is running"
    ]
    assert judged(replace(probe, devices=()), Policy.ALL).blockers == ()
    assert len(judged(replace(probe, age_s=1000.0), Policy.USER).kills) == 1


def test_nobody_gives_an_empty_plan() -> None:
    assert plan_cleanup([], Policy.ALL, ROOT) == Plan(Policy.ALL, (), ())


def test_a_person_finds_the_process_by_its_words() -> None:
    assert name_them([STRANGER]) == (
        "pid 4711 (python3 of alice, 2 h: python3 train.py --epochs 3)"
    )
    assert [age(s) for s in (0, 59, 61, 3600, 200_000)] == ["0 s", "59 s", "1 min", "1 h", "2 d"]
