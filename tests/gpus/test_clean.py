"""Cleaning with real processes that hold device files, in all their unwillingness."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.errors import GpusNotFree, InputError
from tasks.domain.facts import GpuFacts
from tasks.gpus.clean import (
    IDLE_MIB,
    SETTLED_S,
    Sight,
    allowed_policy,
    clean,
    in_the_way,
    moved,
    plan_for,
)
from tasks.gpus.plan import Plan, Policy
from tasks.hosts.connect import connect
from tasks.hosts.host import MARK, Host
from tests.hosts.processes import IGNORING, alive, running

HOLD = "import os, sys, time; file = open(sys.argv[1])\n"
FOR_EVER = "print('there'); time.sleep(1000)\n"
FORKING = HOLD + (
    "for _ in range(3):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(1000)\n" + FOR_EVER
)
RESPAWNING = (
    "import subprocess, sys, time\n"
    "child = 'import sys, time; file = open(sys.argv[1]); time.sleep(1000)'\n"
    "print('there')\n"
    "while True: subprocess.run([sys.executable, '-c', child, sys.argv[1]])\n"
)
NOBODY = Plan(Policy.OWN, (), ())
GPU = GpuFacts(0, "H100", "GPU-1", memory_total_mib=81559, memory_used_mib=4)


def sight(*used_mib: int) -> Sight:
    gpus = (replace(GPU, index=i, memory_used_mib=mib) for i, mib in enumerate(used_mib))
    return Sight((), tuple(gpus))


async def test_a_clean_host_is_known_clean_at_once(dedicated: Host) -> None:
    cleaned = await clean(dedicated)
    assert cleaned.ended == ()
    assert cleaned.took_s < 1.0
    assert [gpu.name for gpu in cleaned.gpus] == ["NVIDIA H100 80GB HBM3"]


async def test_who_is_deaf_to_sigterm_and_forks_is_ended(dedicated: Host, device: Path) -> None:
    with running(IGNORING + FORKING, device) as process:
        cleaned = await clean(dedicated, grace_s=0.3)
        assert len(cleaned.ended) == 4
        assert process.pid in [kill.process.pid for kill in cleaned.ended]
        assert all(str(device) in kill.process.devices for kill in cleaned.ended)
        assert not any(alive(kill.process.pid) for kill in cleaned.ended)
    assert cleaned.policy is Policy.ALL


async def test_a_stranger_is_not_touched_under_own_but_named(shared: Host, device: Path) -> None:
    with running(HOLD + FOR_EVER, device) as stranger:
        with pytest.raises(GpusNotFree) as told:
            await clean(shared, grace_s=0.1, timeout_s=0.3)
        assert alive(stranger.pid)
    assert f"pid {stranger.pid} (" in str(told.value)
    assert "dedicated = true" in str(told.value)
    assert "host shared" in str(told.value)


@pytest.mark.parametrize("program", [HOLD + FOR_EVER, "import time\n" + FOR_EVER])
async def test_our_leftovers_go_whether_they_hold_a_device_or_not(
    shared: Host, device: Path, program: str
) -> None:
    mark = f"test{device}/1/"
    os.makedirs(shared.launch_folder(mark))
    with running(program, device, env={**os.environ, MARK: mark}) as leftover:
        cleaned = await clean(shared, grace_s=2)
        assert [kill.process.pid for kill in cleaned.ended] == [leftover.pid]
        assert leftover.wait(1) == -15
    assert [kill.reason for kill in cleaned.ended] == [f"left by our run {mark}"]


async def test_what_another_run_folder_launched_is_not_touched(shared: Host, device: Path) -> None:
    env = {**os.environ, MARK: f"test{device}/of-another/"}
    with running("import time\n" + FOR_EVER, env=env) as other:
        assert (await clean(shared)).ended == ()
        assert alive(other.pid)


async def test_policy_user_takes_the_user_s_holders_only(shared: Host, device: Path) -> None:
    with running(HOLD + FOR_EVER, device) as holder, running("import time\n" + FOR_EVER) as other:
        await clean(shared, Policy.USER, grace_s=2)
        assert holder.wait(1) == -15
        assert alive(other.pid)


async def test_looking_touches_nothing(dedicated: Host, device: Path) -> None:
    with running(HOLD + FOR_EVER, device) as holder:
        plan, _ = await plan_for(dedicated)
        assert [kill.process.pid for kill in plan.kills] == [holder.pid]
        assert alive(holder.pid)


async def test_the_settings_name_more_programs_that_are_never_ended(
    settings: HostSettings, device: Path
) -> None:
    name = os.path.basename(sys.executable)
    sparing = settings.model_copy(update={"dedicated": True, "never_end": (name,)})
    async with connect("sparing", sparing) as host:
        with running(HOLD + FOR_EVER, device) as holder:
            assert (await clean(host)).ended == ()
            assert alive(holder.pid)


async def test_we_ourselves_are_spared_when_we_hold_a_device(dedicated: Host, device: Path) -> None:
    with device.open():
        plan, _ = await plan_for(dedicated)
        assert [spare.reason for spare in plan.spares] == ["this is us"]
        assert (await clean(dedicated)).ended == ()


async def test_who_comes_back_each_time_is_not_fought_for_ever(
    dedicated: Host, device: Path
) -> None:
    with running(RESPAWNING, device), pytest.raises(GpusNotFree, match="GPUs not free after"):
        await clean(dedicated, grace_s=0.2, timeout_s=0.5)


async def test_memory_that_is_given_back_late_is_waited_for(
    dedicated: Host, device: Path, memory: Callable[..., None]
) -> None:
    memory(4, 60_000)

    async def give_back() -> None:
        await asyncio.sleep(0.6)
        memory(4, 4)

    later = asyncio.create_task(give_back())
    cleaned = await clean(dedicated)
    await later
    assert 0.6 < cleaned.took_s < 2.0
    assert [gpu.memory_used_mib for gpu in cleaned.gpus] == [4, 4]


async def test_memory_that_nobody_seems_to_have_is_an_error_with_the_driver_s_word(
    dedicated: Host, device: Path, tmp_path: Path, memory: Callable[..., None]
) -> None:
    memory(4, 60_000)
    (tmp_path / "apps.csv").write_text("31337, /usr/bin/python3, 59512\n")
    with pytest.raises(GpusNotFree) as told:
        await clean(dedicated, grace_s=0.1, timeout_s=0.2)
    assert "GPU 1 has 60000 MiB taken" in str(told.value)
    assert "the driver names pid 31337 (/usr/bin/python3)" in str(told.value)


async def test_cleaning_returns_soon_after_the_last_holder_s_end(
    shared: Host, device: Path
) -> None:
    brief = HOLD + "print('there'); time.sleep(1.0)\n"
    with running(brief, device) as stranger:
        cleaning = asyncio.create_task(clean(shared))
        await asyncio.to_thread(stranger.wait)
        ended = time.monotonic()
        assert (await cleaning).ended == ()
        assert time.monotonic() - ended < 1.0


async def test_without_nvidia_smi_the_holders_alone_decide(
    settings: HostSettings, device: Path
) -> None:
    blind = settings.model_copy(update={"nvidia_smi": ("no-such-smi",), "dedicated": True})
    async with connect("blind", blind) as host:
        with running(HOLD + FOR_EVER, device) as holder:
            cleaned = await clean(host, grace_s=2)
            assert [kill.process.pid for kill in cleaned.ended] == [holder.pid]
    assert cleaned.gpus == ()


async def test_cancelling_a_wait_leaves_nothing_running(shared: Host, device: Path) -> None:
    with running(HOLD + FOR_EVER, device) as stranger:
        cleaning = asyncio.create_task(clean(shared))
        await asyncio.sleep(0.4)
        cleaning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
        assert alive(stranger.pid)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    # What asyncio itself does to close a pipe may take a turn of the loop.
    assert not others or not (await asyncio.wait(others, timeout=5))[1]


def test_all_is_only_for_dedicated_hosts() -> None:
    shared, dedicated = HostSettings(), HostSettings(dedicated=True)
    assert allowed_policy("h", shared) is Policy.OWN
    assert allowed_policy("h", dedicated) is Policy.ALL
    assert allowed_policy("h", dedicated, Policy.OWN) is Policy.OWN
    with pytest.raises(InputError, match=r"host h: policy 'all' needs `dedicated = true`"):
        allowed_policy("h", shared, Policy.ALL)


def test_memory_above_idle_counts_as_idle_only_when_it_has_settled_and_is_little() -> None:
    assert in_the_way(NOBODY, sight(IDLE_MIB), 0.0) == []
    assert len(in_the_way(NOBODY, sight(IDLE_MIB + 1, 4, 2000), 0.0)) == 2
    assert in_the_way(NOBODY, sight(2000), SETTLED_S) == []
    assert len(in_the_way(NOBODY, sight(20_000), SETTLED_S)) == 1
    assert in_the_way(NOBODY, Sight((), None), 0.0) == []


def test_a_screen_that_is_redrawn_does_not_move() -> None:
    assert not moved(sight(2000), sight(2030))
    assert moved(sight(2000), sight(1800))
