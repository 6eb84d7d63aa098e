"""One server over two pretend hosts: they meet, only the first serves, and one's end is told."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.simulator.conftest import QUICK, READY, Served, Simulator


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Simulator, Simulator]]:
    both = Simulator(tmp_path / "a"), Simulator(tmp_path / "b")
    for each in both:
        each.folder.mkdir()
    yield both
    assert [each.end() for each in both] == [[], []]


def nodes(hosts: tuple[Simulator, Simulator], scenario: str = QUICK) -> tuple[Served, Served]:
    """Launch both nodes, the second first: whoever comes early waits."""
    where = ("--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    second = hosts[1].launch(*where, "--node-rank", "1", scenario=scenario)
    second.await_log("TP4] Init torch distributed begin.")
    first = hosts[0].launch(*where, "--node-rank", "0", scenario=scenario)
    return first, second


def test_the_ranks_are_shared_out_and_only_the_first_node_has_an_api(hosts) -> None:
    first, second = nodes(hosts)
    first.await_log(READY)
    second.await_log("Starting dummy health check server at 127.0.0.1:")
    assert READY not in second.log
    ranks = [{name for name in each.children() if "TP" in name} for each in (first, second)]
    assert ranks[0] == {f"sglang::scheduler_TP{rank}" for rank in range(4)}
    assert ranks[1] == {f"sglang::scheduler_TP{rank}" for rank in range(4, 8)}
    held = [os.readlink(link) for pid in second.children().values() for link in _files(pid)]
    assert str(hosts[1].root / "dev" / "nvidia3") in held
    assert str(hosts[1].root / "dev" / "nvidia4") not in held
    body = {"text": "Hello", "sampling_params": {"max_new_tokens": 2}}
    assert httpx.post(f"{first.url}/generate", json=body).json()["text"]
    assert httpx.get(f"{second.url}/health").status_code == 200
    assert httpx.post(f"{second.url}/generate", json=body).status_code == 404
    assert first.stop() == 0


def _files(pid: int) -> Iterator[Path]:
    return (Path(f"/proc/{pid}/fd") / fd for fd in os.listdir(f"/proc/{pid}/fd"))


def test_while_they_serve_the_end_of_one_ends_the_other_with_an_echo(hosts) -> None:
    first, second = nodes(hosts)
    first.await_log(READY)
    second.await_log("Starting dummy health check server")
    os.killpg(second.process.pid, signal.SIGKILL)
    assert first.await_exit() == -signal.SIGKILL
    assert "Connection closed by peer [127.0.0.1]" in first.log


def test_while_they_start_the_end_of_one_leaves_the_other_waiting_without_a_word(hosts) -> None:
    oom = '[[fault]]\nkind = "oom-graph-capture"\nwhen = {node_rank = 1}\n'
    first, second = nodes(hosts, QUICK + oom)
    assert second.await_exit() == -signal.SIGKILL
    assert "TP7] Scheduler hit an exception" in second.log
    assert "GPU 3 has a total capacity" in second.log
    first.await_log("Capture cuda graph end.")
    assert first.process.poll() is None
    assert READY not in first.log
