"""A server that served and is of no use any more: known at once, by process and by worker."""

import os
import signal

import pytest

from tasks.domain.errors import LeaseExpired
from tasks.failures.nodes import blame
from tasks.server.death import serving
from tasks.server.readiness import Ready
from tests.server.conftest import Bed


async def test_a_worker_that_is_gone_and_then_the_server(bed: Bed):
    launch = await bed.launch()
    assert isinstance(await bed.ready(launch), Ready)
    server = await serving(launch)
    assert [len(workers) for workers in server.workers] == [9]
    assert await server.ends(certain_s=1.0) is None
    family = await bed.host.ours(launch.mark)
    [main] = [one for one in family if not one.name.startswith("sglang::")]
    [rank] = [one for one in family if one.command.startswith("sglang::scheduler_TP3")]

    os.kill(main.pid, signal.SIGSTOP)  # so that it can't see what happens
    os.kill(rank.pid, signal.SIGKILL)
    assert not await server.alive()
    [lost] = await server.ends(certain_s=0.1) or []
    assert (lost.exit_code, lost.stalled) == (None, True)
    _, diagnosis = blame([lost])
    assert diagnosis is not None
    assert diagnosis.mode == "scheduler-died-silently"

    os.kill(main.pid, signal.SIGCONT)
    [ended] = await server.ends(certain_s=10.0) or []
    assert (ended.exit_code, ended.stalled) == (-signal.SIGKILL, False)
    assert "Received sigquit" in ended.log


async def test_a_lease_that_ran_out_is_no_failure_of_the_server(bed: Bed):
    launch = await bed.launch()
    assert isinstance(await bed.ready(launch), Ready)
    server = await serving(launch)
    await bed.host.run(["rm", f"{launch.folder}/lease"])
    await bed.host.watch(launch.folder, launch.mark, 1 << 60, wait_s=20.0)
    with pytest.raises(LeaseExpired, match="nobody renewed the server's lease"):
        await server.ends(certain_s=10.0)
