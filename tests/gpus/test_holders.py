"""Who holds the devices, in the ways that are easily missed; none of them touched needlessly."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.errors import GpusNotFree
from tasks.domain.nvidia_smi import GpuApp
from tasks.gpus.clean import Sight, attributed, clean, plan_for
from tasks.gpus.plan import Policy
from tasks.hosts.agent.devices import container_in, identity, place
from tasks.hosts.agent.processes import send, stat_fields
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tests.gpus.test_plan import STRANGER
from tests.hosts.processes import alive, running

FOR_EVER = "print('there'); time.sleep(1000)\n"
HOLD = "import os, sys, time; file = open(sys.argv[1])\n"
MAPPED = (
    "import mmap, os, sys, time; number = os.open(sys.argv[1], os.O_RDONLY)\n"
    "held = mmap.mmap(number, 1, prot=mmap.PROT_READ); os.closerange(3, 64)\n" + FOR_EVER
)
NOBODY = HOLD + "os.setgid(65534); os.setuid(65534)\n"
NAMELESS = HOLD + "os.setuid(54321)\n"
CHURNING = (
    "import os, sys, time; print('there')\n"
    "while True:\n"
    "    for brief in range(5):\n"
    "        if os.fork() == 0:\n"
    "            file = open(sys.argv[1]); time.sleep(brief / 40); os._exit(0)\n"
    "    for _ in range(5): os.wait()\n"
)
CONTAINED = (
    "import os, subprocess, sys\n"
    "hold = 'exec 3< \"$0\"; echo there; sleep 1000'\n"
    "os.execvp(sys.argv[1], [*sys.argv[1:-1], 'sh', '-c', hold, sys.argv[-1]])\n"
)
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_unshare() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="needs a pid namespace")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def mappable(device: Path) -> Path:
    device.write_bytes(b"device")
    return device


async def test_a_device_that_is_mapped_is_held_though_its_file_is_closed(
    dedicated: Host, mappable: Path
) -> None:
    with running(MAPPED, mappable) as holder:
        (seen,) = await dedicated.holders()
        assert (seen.pid, seen.devices) == (holder.pid, (str(mappable),))
        assert not any(
            os.readlink(f"/proc/{holder.pid}/fd/{number}") == str(mappable)
            for number in os.listdir(f"/proc/{holder.pid}/fd")
        )
        cleaned = await clean(dedicated, grace_s=2)
        assert [kill.process.pid for kill in cleaned.ended] == [holder.pid]


async def test_a_device_is_known_under_another_path_and_a_namesake_is_none(
    shared: Host, device: Path, tmp_path: Path
) -> None:
    (tmp_path / "inside").mkdir()
    other_path, namesake = tmp_path / "inside" / device.name, tmp_path / device.name
    os.link(device, other_path)
    namesake.touch()
    with running(HOLD + FOR_EVER, other_path) as holder, running(HOLD + FOR_EVER, namesake):
        (seen,) = await shared.holders()
    assert (seen.pid, seen.devices) == (holder.pid, (str(device),))


@needs_root
async def test_another_user_s_process_is_ended_by_root_under_all_alone(
    shared: Host, dedicated: Host, device: Path
) -> None:
    with running(NOBODY + FOR_EVER, device) as theirs:
        for policy in (Policy.OWN, Policy.USER):
            with pytest.raises(GpusNotFree, match=rf"pid {theirs.pid} \(python\S* of nobody"):
                await clean(shared, policy, grace_s=0.1, timeout_s=0.1)
            assert alive(theirs.pid)
        cleaned = await clean(dedicated, grace_s=2)
        assert [kill.record().user for kill in cleaned.ended] == ["nobody"]
        assert theirs.wait(1) == -15


@needs_root
async def test_a_user_without_a_name_is_told_by_number(shared: Host, device: Path) -> None:
    with running(NAMELESS + FOR_EVER, device):
        (seen,) = await shared.holders()
    assert (seen.uid, seen.user) == (54321, "54321")


async def test_processes_that_end_while_they_are_looked_at_are_no_error_and_no_riddle(
    dedicated: Host, device: Path
) -> None:
    with running(CHURNING, device):
        looks = [await plan_for(dedicated) for _ in range(20)]
    seen = [kill.process for plan, _ in looks for kill in plan.kills]
    assert seen, "the test never saw a holder"
    assert all(process.name and process.user and process.started_at for process in seen)


@needs_namespaces
async def test_a_holder_in_a_container_is_seen_from_the_host(shared: Host, device: Path) -> None:
    with running(CONTAINED, *NAMESPACE, device) as container:
        seen = await shared.holders()
    inside = {process.container for process in seen if process.pid != container.pid}
    assert inside == {"a container"}


@needs_namespaces
async def test_in_a_container_what_only_the_driver_sees_is_named_as_such(
    settings: HostSettings, device: Path, tmp_path: Path, memory: Callable[..., None]
) -> None:
    inside = settings.model_copy(update={"prefix": NAMESPACE, "dedicated": True})
    memory(60_000)
    async with connect("inside", inside) as host:
        assert host.identity.nested_pids
        with running(HOLD + FOR_EVER, device) as holder:
            (tmp_path / "apps.csv").write_text(f"{holder.pid}, python3, 59512\n")
            with pytest.raises(GpusNotFree) as told:
                await clean(host, grace_s=0.1, timeout_s=0.1)
    named = f"the driver names pid {holder.pid} (python3) with 59512 MiB, of outside this container"
    assert named in str(told.value)


async def test_a_process_that_took_a_pid_over_is_not_signalled(device: Path) -> None:
    with running(HOLD + FOR_EVER, device) as process:
        born = int(stat_fields(process.pid)[19])
        send(process.pid, born - 1, 9)
        assert alive(process.pid)
        send(process.pid, born, 9)
        assert process.wait(1) == -9


async def test_gpu_memory_is_told_of_each_holder(
    dedicated: Host, device: Path, tmp_path: Path
) -> None:
    with running(HOLD + FOR_EVER, device) as holder:
        lines = (f"{holder.pid}, python3, 512", f"{holder.pid}, python3, 1024", "9, [Not Found], 7")
        (tmp_path / "apps.csv").write_text("".join(f"{line}\n" for line in lines))
        plan, sight = await plan_for(dedicated)
    assert [kill.record().memory_mib for kill in plan.kills] == [1536.0]
    assert [app.pid for app in sight.unseen] == [9]


def test_in_a_container_a_pid_that_is_no_holder_discredits_all_of_them() -> None:
    apps = (GpuApp(4711, "python3", 512.0), GpuApp(31337, "python3", 1024.0))
    sight = Sight((STRANGER,), ())
    assert attributed(sight, apps, nested=False).processes[0].memory_mib == 512.0
    inside = attributed(sight, apps, nested=True)
    assert (inside.processes[0].memory_mib, inside.unseen) == (None, apps)
    assert attributed(sight, apps[:1], nested=True).processes[0].memory_mib == 512.0


HASH = "3f1c9a04d2b7" + 52 * "0"


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{HASH}.scope", "docker 3f1c9a04d2b7"),
        (f"12:devices:/docker/{HASH}\n0::/", "docker 3f1c9a04d2b7"),
        (f"0::/machine.slice/libpod-{HASH}.scope/container", "libpod 3f1c9a04d2b7"),
        (f"0::/kubepods.slice/pod1.slice/cri-containerd-{HASH}.scope", "containerd 3f1c9a04d2b7"),
        (f"0::/kubepods/burstable/pod1f-2/{HASH}", "pod 3f1c9a04d2b7"),
        ("0::/lxc/129/ns/user.slice/session-1.scope", "lxc 129"),
        ("0::/lxc.payload.129/init.scope", "lxc 129"),
        ("0::/user.slice/user-1000.slice/session-3.scope", ""),
        ("0::/", ""),
    ],
)
def test_a_container_is_known_by_its_cgroup(cgroup: str, container: str) -> None:
    assert container_in(cgroup) == container


def test_a_character_device_is_the_same_by_whatever_file() -> None:
    null = os.stat("/dev/null")
    assert identity(null) == ("device", null.st_rdev, 0)
    assert place(null)[1] == null.st_ino
