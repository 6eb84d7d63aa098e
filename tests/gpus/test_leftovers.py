"""What our dead launches leave outside their folders goes; nothing else does."""

import asyncio
import ctypes
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.gpus.clean import clean, plan_for
from tasks.hosts.agent.traces import ASIDE
from tasks.hosts.host import Host
from tests.hosts.processes import running, wait_for

SHM = Path("/dev/shm")
LEAVING = """\
import ctypes, os, signal, sys, time
named, lock = sys.argv[1:3]
segment = open(named, "w+b")
segment.write(b"x" * 4096)
os.makedirs(os.path.dirname(lock), exist_ok=True)
os.open(lock, os.O_CREAT | os.O_EXCL)
print(ctypes.CDLL(None).shmget(0, 4096, 0o1600), flush=True)
time.sleep(1000)
"""
HOLD = "import sys, time; file = open(sys.argv[1]); print('there'); time.sleep(1000)\n"
pytestmark = pytest.mark.skipif(not SHM.is_dir(), reason="needs /dev/shm")


@pytest.fixture
def named() -> Iterator[Path]:
    """A name in /dev/shm that nobody has."""
    path = SHM / f"test-leftovers-{uuid.uuid4().hex}"
    yield path
    path.unlink(missing_ok=True)


def there(path: Path) -> bool:
    return path.exists()


async def left_behind(host: Host, named: Path, lock: Path, mark: str) -> int:
    """Have a launch leave a segment, a lock and a System V segment, whose number is returned."""
    folder = host.launch_folder(mark)
    argv = [sys.executable, "-c", LEAVING, str(named), str(lock)]
    await host.start(argv, env={}, folder=folder, mark=mark, lease_s=60, grace_s=1)
    traces = Path(host.run_folder) / "traces"
    await asyncio.to_thread(wait_for, lambda: list(traces.glob("*.json")), "what it left")
    return int((await host.watch(folder, mark, 0)).log)


async def test_what_a_dead_launch_left_is_shown_then_taken_away(
    shared: Host, named: Path, tmp_path: Path
) -> None:
    lock, mark = tmp_path / "extensions" / "op" / "lock", f"test{tmp_path}/1/"
    number = await left_behind(shared, named, lock, mark)
    assert await shared.leftovers() == (), "it lives"
    await shared.stop(mark, 0)
    _, sight = await plan_for(shared)
    seen = {(left.kind, left.name) for left in sight.leftovers}
    expected = {("shared memory", str(named)), ("build lock", str(lock)), ("segment", str(number))}
    assert seen == expected
    assert there(named), "a plan touches nothing"
    removed = (await clean(shared)).removed
    assert {(left.kind, left.name) for left in removed} == expected
    assert not there(named)
    assert not there(lock)
    assert there(lock.with_name(lock.name + ASIDE))
    assert ctypes.CDLL(None).shmctl(number, 2, ctypes.create_string_buffer(256)) == -1
    assert (await clean(shared)).removed == ()
    assert os.listdir(f"{shared.run_folder}/traces") == [], "nothing is left to remember"


async def test_what_somebody_has_open_or_has_made_anew_stays(
    shared: Host, named: Path, tmp_path: Path
) -> None:
    lock, mark = tmp_path / "lock", f"test{tmp_path}/1/"
    await left_behind(shared, named, lock, mark)
    await shared.stop(mark, 0)
    os.unlink(lock)
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    with running(HOLD, named):
        assert [left.kind for left in (await clean(shared)).removed] == ["segment"]
    assert there(named)
    assert there(lock)
    assert [left.name for left in (await clean(shared)).removed] == [str(named)]


async def test_what_was_there_before_the_launch_is_not_ours(
    shared: Host, named: Path, tmp_path: Path
) -> None:
    os.close(os.open(named, os.O_CREAT))
    mark = f"test{tmp_path}/1/"
    number = await left_behind(shared, named, tmp_path / "lock", mark)
    await shared.stop(mark, 0)
    names = {left.name for left in (await clean(shared)).removed}
    assert names == {str(tmp_path / "lock"), str(number)}
    assert there(named)
