"""One sweep per host: contention between processes, expiry, loss."""

import asyncio
import sys
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.errors import HostError, HostLocked
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import hold, hold_all
from tests.hosts.processes import running, wait_for

HOLDER = """
import asyncio, sys
from settings.host import Host as HostSettings
from tasks.hosts.connect import connect
from tasks.hosts.lock import hold

async def main(run_folder, lease_s):
    async with connect("local", HostSettings(run_folder=run_folder)) as host:
        async with hold(host, "the other night", "token-1", float(lease_s), 0):
            print("held")
            await asyncio.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_second_process_is_told_who_holds_the_host(
    host: Host, settings: HostSettings
) -> None:
    told = pytest.raises(HostLocked, match=r"host local: held by the other night since \d{4}-")
    with running(HOLDER, settings.run_folder, 60), told:
        async with hold(host, "us", "token-2", 60, 0):
            pytest.fail("two hold the host")


async def test_a_holder_that_was_killed_is_waited_out(host: Host, settings: HostSettings) -> None:
    with running(HOLDER, settings.run_folder, 1.5) as holder:
        holder.kill()
        holder.wait()
        with pytest.raises(HostLocked):
            async with hold(host, "us", "token-2", 60, 0):
                pytest.fail("the lease has not expired yet")
        async with hold(host, "us", "token-2", 60, 5):
            pass


async def test_the_lock_is_free_after_the_block_even_when_cancelled(host: Host) -> None:
    entered = asyncio.Event()

    async def for_ever() -> None:
        async with hold(host, "us", "token-1", 60, 0):
            entered.set()
            await asyncio.sleep(1000)

    task = asyncio.create_task(for_ever())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with hold(host, "they", "token-2", 60, 0):
        pass


async def test_the_heartbeat_outlasts_the_lease(host: Host) -> None:
    async with hold(host, "us", "token-1", 0.8, 0) as held:
        await asyncio.sleep(1.2)
        assert not held.lost.is_set()
        with pytest.raises(HostLocked):
            async with hold(host, "they", "token-2", 1.0, 0):
                pytest.fail("the heartbeat did not keep the lock")


async def test_losing_the_lock_is_noticed(host: Host) -> None:
    async with hold(host, "us", "token-1", 1.0, 0) as held:
        lock = Path(host.run_folder) / "lock.json"
        lock.write_text(lock.read_text().replace("token-1", "token-2"))
        await asyncio.wait_for(held.lost.wait(), 5)
    # What is another's by now stays theirs.
    assert "token-2" in lock.read_text()


async def test_only_one_of_many_gets_the_lock(host: Host, tmp_path: Path) -> None:
    request = {"run_folder": host.run_folder, "owner": "us", "expiry_s": 60}
    answers = await asyncio.gather(
        *(host.ask("lock", {**request, "token": str(number)}) for number in range(6))
    )
    assert sum(answer["taken"] for answer in answers) == 1


async def test_the_heartbeat_keeps_the_servers_that_were_added(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    async with hold(host, "us", "token-1", 1.0, 0) as held:
        held.folders.add(str(folder))
        argv = [sys.executable, "-c", "import time; time.sleep(1000)"]
        await host.start(argv, env={}, folder=str(folder), mark="kept", lease_s=1.0, grace_s=0.1)
        await asyncio.sleep(1.3)
        assert (await host.watch(str(folder), "kept", 0)).running
        held.folders.clear()
        (server,) = await host.ours("kept")
        wait_for(lambda: not Path(f"/proc/{server.pid}").exists(), "the end of the server")


async def test_several_hosts_are_locked_in_one_order_whatever_they_are_called(
    host: Host, settings: HostSettings, tmp_path: Path
) -> None:
    """Two sweeps that name the same hosts the other way round never wait for each other."""
    other_folder = settings.model_copy(update={"run_folder": str(tmp_path / "run-2")})
    async with connect("second", other_folder) as other:

        async def sweep(token: str, hosts: list[Host]) -> list[str]:
            async with hold_all(hosts, token, token, 60, 30) as holds:
                await asyncio.sleep(0.05)
                return [held.host.name for held in holds]

        both = asyncio.gather(sweep("one", [host, other]), sweep("two", [other, host]))
        assert await asyncio.wait_for(both, 20) == [["local", "second"], ["second", "local"]]


async def test_two_names_of_one_lock_are_refused(host: Host, settings: HostSettings) -> None:
    async with connect("again", settings) as again:
        with pytest.raises(HostError, match="is the same machine and run folder as local"):
            async with hold_all([host, again], "us", "token", 60, 0):
                pytest.fail("both were had")
