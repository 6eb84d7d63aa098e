"""The load on the host itself: shipped, verified, carried out, brought back, taken away."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from settings.workload import Workload
from tasks.domain.errors import HostError
from tasks.domain.measurement import RequestOutcome
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold
from tasks.hosts.transport import LocalTransport
from tasks.load.bench_serving import Foreign, ForeignClientFailed, run_foreign
from tasks.load.foreign_on_host import OnHost
from tasks.load.on_host import HostCapture, ship
from tasks.load.run import run_level
from tasks.load.target import Level, Target
from tasks.load.workers import CaptureFailed
from tests.hosts.processes import oldest_python, wait_for
from tests.load.streaming_server import Behaviour, StreamingServer

WORKLOAD = Workload(name="w", input_len=16, output_len=8, concurrency=[4], requests=12)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with connect("local", HostSettings(run_folder=str(tmp_path / "run"))) as connected:
        yield connected


def capture_on(host: Host, server: StreamingServer) -> HostCapture:
    hold = Hold(host, "token", 60.0)
    return HostCapture(hold, f"test{host.run_folder}/load/", Target(server.url).port)


def files_of(host: Host) -> list[str]:
    """What lies in the folders of the host's launches."""
    return [path.name for path in Path(host.launch_folder("")).rglob("*") if path.is_file()]


async def test_a_level_is_measured_as_from_here(host: Host) -> None:
    async with StreamingServer(Behaviour()) as server:
        result = await run_level(
            Target(server.url),
            WORKLOAD,
            Level(concurrency=4),
            seed=1,
            repeat=0,
            processes=2,
            capturing=capture_on(host, server),
        )
    measured = [record for record in result.records if not record.warmup]
    assert [record.index for record in measured] == list(range(12))
    assert {record.outcome for record in measured} == {RequestOutcome.FINISHED}
    assert result.client["processes"] == 2
    assert await host.ours(f"test{host.run_folder}") == []
    assert files_of(host) == []


async def test_python_3_8_is_enough(tmp_path: Path) -> None:
    python = oldest_python()
    if python is None:
        pytest.skip("there is no working python3.8 on this machine")
    settings = HostSettings(run_folder=str(tmp_path / "run"))
    host = Host("local", settings, LocalTransport("local", python))
    await host.open()
    async with StreamingServer(Behaviour()) as server:
        capture = capture_on(host, server)
        level = Level(concurrency=4)
        result = await run_level(
            Target(server.url), WORKLOAD, level, seed=1, repeat=0, capturing=capture
        )
    assert result.metrics["completed"] == 12


async def test_a_server_that_dies_ends_the_load(host: Host) -> None:
    async def dead() -> bool:
        return False

    async with StreamingServer(Behaviour(itl_s=0.5)) as server:
        result = await run_level(
            Target(server.url),
            WORKLOAD.model_copy(update={"warmup_requests": 0}),
            Level(concurrency=4),
            seed=1,
            repeat=0,
            is_alive=dead,
            capturing=capture_on(host, server),
        )
    assert any("server died" in reason for reason in result.verdict.reasons)


async def test_a_cancellation_leaves_nothing_there(host: Host) -> None:
    async with StreamingServer(Behaviour(itl_s=0.5)) as server:
        capture = capture_on(host, server)
        level = Level(concurrency=4)
        running = asyncio.create_task(
            run_level(Target(server.url), WORKLOAD, level, seed=1, repeat=0, capturing=capture)
        )
        await asyncio.to_thread(wait_for, lambda: "lease" in files_of(host), "the start")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert await host.ours(capture.mark) == []
    assert files_of(host) == []


async def test_a_package_that_was_changed_there_is_not_run(host: Host) -> None:
    folder = Path(await ship(host))
    assert folder == Path(await ship(host))
    with (folder / "capture" / "loop.py").open("a") as file:
        file.write("# somebody was here\n")
    with pytest.raises(HostError, match="isn't what was put there"):
        await ship(host)


async def test_a_process_that_crashes_is_told_with_its_last_words(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StreamingServer(Behaviour()) as server:
        broken = capture_on(host, server)
        monkeypatch.setattr("tasks.load.workers.Job.encode", lambda _: b"\x02\0\0\0{}")
        level = Level(concurrency=4)
        with pytest.raises(CaptureFailed, match="KeyError: 'requests'"):
            await run_level(Target(server.url), WORKLOAD, level, seed=1, repeat=0, capturing=broken)


async def test_nothing_outside_of_the_launches_is_removed(host: Host) -> None:
    within = host.launch_folder("")
    for folder in (within, f"{within}/..", f"{within}/../agent"):
        with pytest.raises(HostError, match="is not within"):
            await host.ask("remove", {"folder": folder, "within": within})


WRITES = (
    "open(sys.argv[sys.argv.index('--output-file') + 1], 'w').write("
    "json.dumps({'completed': 12, 'duration': 1.0}))"
)


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (WRITES, None),
        ("sys.exit('No module named sglang')", "ended with 1: No module named sglang"),
        ("", "ended with 0: it gave no result"),
    ],
)
async def test_sglangs_own_client_runs_there(host: Host, tmp_path, body, failure) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport sys, json\n{body}\n")
    python.chmod(0o755)
    there = OnHost(Hold(host, "token", 60.0), f"test{host.run_folder}/load/")
    foreign = Foreign(str(python), base_url="http://127.0.0.1:1", model_path="/m")
    run = run_foreign(
        foreign,
        Target("http://elsewhere:2"),
        WORKLOAD,
        Level(concurrency=4),
        seed=1,
        repeat=3,
        execute=there,
    )
    if failure is None:
        result = await run
        assert (result.metrics["completed"], result.metrics["failed"]) == (12, 0)
        assert (result.repeat, result.client["engine"]) == (3, "sglang.bench_serving")
    else:
        with pytest.raises(ForeignClientFailed, match=failure):
            await run
    assert await host.ours(there.mark) == []
    assert files_of(host) == []
