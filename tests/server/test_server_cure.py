"""What a remedy requires is looked up on the host itself, and what it takes away is only ours."""

import asyncio
import mmap
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.domain.configuration import ServerConfiguration
from tasks.domain.diagnosis import Cleanup, Need, Remedy, Requirement
from tasks.domain.facts import StackFacts, StackReport
from tasks.server.cure import tidy, unmet
from tasks.server.order import LaunchOrder
from tests.server.conftest import WHAT, Bed


def order(model: str = "org/model", *remedies: Remedy, **env: str) -> LaunchOrder:
    facts = StackFacts("python3", "3.11", "linux", ())
    return LaunchOrder(
        configuration=ServerConfiguration(model, {}, env),
        stack=StackReport("simulated", "python3", "fingerprint", facts, ()),
        remedies=remedies,
        trial_id="t",
        number=1,
        repeat=1,
        mark="m/",
        what=WHAT,
    )


async def lacking(bed: Bed, need: Need, what: str = "", text: str = "", **env: str) -> list[str]:
    remedy = Remedy("cure", requires=(Requirement(need, what, text),))
    return list(await unmet(bed.site, remedy, order(**env)))


async def test_programs_files_and_folders(bed: Bed):
    tool = bed.folder / "ptxas"
    assert await lacking(bed, Need.PROGRAM, str(tool)) == [f"{tool} is not a program on this host"]
    tool.write_text("#!/bin/sh\necho \"Allowed values: 'sm_90','sm_120a'\"\n")
    assert await lacking(bed, Need.KNOWS, str(tool), "sm_90") == [f"{tool} can't be run"]
    tool.chmod(0o755)
    assert await lacking(bed, Need.PROGRAM, str(tool)) == []
    assert await lacking(bed, Need.KNOWS, str(tool), "sm_120a") == []
    assert await lacking(bed, Need.KNOWS, str(tool), "sm_121") == [
        f"{tool} doesn't know sm_121 either"
    ]
    assert await lacking(bed, Need.FILE, f"{bed.folder}/*/include/cu.h") != []
    (bed.folder / "curand" / "include").mkdir(parents=True)
    (bed.folder / "curand" / "include" / "cu.h").touch()
    assert await lacking(bed, Need.FILE, f"{bed.folder}/*/include/cu.h") == []
    assert await lacking(bed, Need.WRITABLE, "/proc/nowhere/cache") != []
    assert await unmet(bed.site, Remedy("needs nothing"), order()) == ()


async def test_a_snapshot_is_whole_only_with_every_shard(bed: Bed):
    hub = bed.folder / "hub"
    [reason] = await lacking(bed, Need.SNAPSHOT, HF_HUB_CACHE=str(hub))
    assert reason == f"{hub} holds no whole snapshot of org/model"
    snapshot = hub / "models--org--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    index = '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
    (snapshot / "model.safetensors.index.json").write_text(index)
    (snapshot / "model-1.safetensors").touch()
    (snapshot / "model-2.safetensors").symlink_to("../../blobs/missing")
    assert await lacking(bed, Need.SNAPSHOT, HF_HUB_CACHE=str(hub)) != []
    (snapshot / "model-2.safetensors").unlink()
    (snapshot / "model-2.safetensors").touch()
    assert await lacking(bed, Need.SNAPSHOT, HF_HUB_CACHE=str(hub)) == []


async def test_a_lock_is_moved_aside_only_when_its_owner_is_dead(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(bed.folder))  # the agent's, so that no real cache is looked at
    env = {"TORCH_EXTENSIONS_DIR": str(bed.folder / "ext"), "XDG_CACHE_HOME": str(bed.folder)}
    lock = bed.folder / "ext" / "fused_rope" / "lock"
    assert await lacking(bed, Need.STALE_LOCK, **env) == ["no build lock is left over"]
    lock.parent.mkdir(parents=True)
    cure = Remedy("move", cleanup=(Cleanup.JIT_LOCKS, Cleanup.GPUS))
    with lock.open("w"):
        [reason] = await lacking(bed, Need.STALE_LOCK, **env)
        assert reason == f"process {os.getpid()} lives and holds {lock}"
        assert await tidy(bed.site, order("m", cure, **env)) == ()
    assert await lacking(bed, Need.STALE_LOCK, **env) == []
    assert await tidy(bed.site, order("m", **env)) == (), "no remedy asks for it"
    assert await tidy(bed.site, order("m", cure, **env)) == (str(lock),)
    assert not lock.exists()
    assert [path.name[:11] for path in lock.parent.iterdir()] == ["lock.stale-"]


@pytest.fixture
def segment() -> Iterator[Path]:
    path = Path("/dev/shm") / f"nccl-test-{uuid.uuid4().hex[:6]}"
    yield path
    path.unlink(missing_ok=True)


def fill(path: Path) -> None:
    path.write_bytes(b"x" * 4096)


async def test_shared_memory_counts_only_where_a_dead_server_of_ours_may_have_left_it(
    bed: Bed, segment: Path
):
    fill(segment)
    assert await lacking(bed, Need.DEAD_SEGMENT) != [], "nothing was launched yet"
    launch = await bed.launch(program="import time; time.sleep(0.3)")
    fill(segment)
    for _ in range(100):
        if (await bed.host.watch(launch.folder, launch.mark, 0)).exit_code is not None:
            break
        await asyncio.sleep(0.05)
    with segment.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert await lacking(bed, Need.DEAD_SEGMENT) != [], "somebody uses it"
    assert await lacking(bed, Need.DEAD_SEGMENT) == []
    assert segment.name in os.listdir("/dev/shm"), "to look takes nothing away"
