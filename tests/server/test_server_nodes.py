"""One server over two simulated hosts, the second one over SSH: it starts, ends and dies as one."""

import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from settings.host import Host as HostSettings
from tasks.domain.configuration import ServerConfiguration
from tasks.domain.diagnosis import Doctor, Phase
from tasks.domain.facts import StackFacts, StackReport
from tasks.failures.diagnosis import diagnosis_of
from tasks.failures.fatal import fatal_line
from tasks.failures.nodes import blame
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold, hold_all
from tasks.hosts.transport import LocalTransport
from tasks.server.attempt import explain, make_attempt
from tasks.server.command import CommandLine
from tasks.server.launch import Launch, Node, Patience, end_launch, log_at, mark_of
from tasks.server.order import Launched, LaunchOrder
from tasks.server.readiness import NotReady
from tasks.server.signs import Signs
from tasks.server.site import Site
from tests.hosts.sshd import Home, Sshd
from tests.ports import first_port
from tests.server.conftest import QUICK, WHAT, create_host, fault

DOCTOR = Doctor(blame, fatal_line, diagnosis_of)
MARK = "sweep/trial/1/"
NODE_1 = "when = {node_rank = 1}\n"


class Pair:
    """Two held hosts, and the server on them."""

    def __init__(self, holds: tuple[Hold, ...], folders: list[Path]) -> None:
        self.holds = holds
        self.folders = folders

    def scenario(self, text: str) -> None:
        for folder in self.folders:
            (folder / "scenario.toml").write_text(QUICK.replace("0.0\n", "0.000001\n") + text)

    async def launch(self, scenario: str = "", stall_s: float = 15) -> Launched:
        self.scenario(scenario)
        first = self.holds[0].host.settings.stacks[0]
        facts = StackFacts(first, "3.11", "linux", ())
        order = LaunchOrder(
            configuration=ServerConfiguration(self.model, {"tp": 8, "nnodes": 2}),
            stack=StackReport("a", first, "f", facts, ()),
            remedies=(),
            trial_id="trial",
            number=1,
            repeat=1,
            mark=MARK,
            what=WHAT,
        )
        patience = Patience(30, stall_s, 2, certain_s=0.5)
        site = Site(self.holds[0], (), patience, self.holds[1:])
        return await make_attempt(order, site, DOCTOR)

    @property
    def model(self) -> str:
        return str(self.folders[0] / "host" / "models" / "kimi")

    async def family(self) -> list[set[str]]:
        """The titles of the processes of each node."""
        return [
            {process.command for process in await hold.host.ours(mark_of(MARK, rank))}
            for rank, hold in enumerate(self.holds)
        ]

    async def end(self) -> None:
        await end_launch(self.holds, MARK, 0.2)
        assert await self.family() == [set(), set()]
        assert [await hold.host.holders() for hold in self.holds] == [[], []]
        assert [hold.folders for hold in self.holds] == [set(), set()]


def hosts(tmp_path: Path) -> tuple[list[Path], list[HostSettings]]:
    """The folders and settings of two simulated hosts."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (create_host(folder, QUICK) for folder in folders)
    update = {"peers": ("b",), "cluster_address": "127.0.0.1", "port": first_port()}
    return folders, [first.model_copy(update=update), second]


@contextlib.asynccontextmanager
async def held(folders: list[Path], settings: Sequence[HostSettings]) -> AsyncIterator[Pair]:
    async with (
        connect("a", settings[0]) as a,
        connect("b", settings[1]) as b,
        hold_all([a, b], "test", "token", 60, 0) as holds,
    ):
        pair = Pair(holds, folders)
        yield pair
        await pair.end()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with held(*hosts(tmp_path)) as pair:
        yield pair


@pytest.fixture
async def far_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """The second host is reached over SSH."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    home, sshd = Home(tmp_path / "home"), Sshd(tmp_path / "sshd")
    sshd.let_in(home.key)
    sshd.start()
    home.configure("far", sshd.port)
    home.trust(sshd)
    folders, [first, second] = hosts(tmp_path)
    try:
        async with held(folders, [first, second.model_copy(update={"address": "far"})]) as pair:
            yield pair
    finally:
        sshd.kill()


def failed(launched: Launched) -> tuple[str, str, int]:
    attempt = launched.attempt
    assert attempt.diagnosis is not None
    where = attempt.diagnosis.explanation.partition(": ")[0]
    return attempt.diagnosis.mode, where, attempt.diagnosis.node


async def test_it_serves_on_both_and_is_ended_on_both(far_pair: Pair):
    pair = far_pair
    launched = await pair.launch()
    assert launched.attempt.diagnosis is None
    [peer] = launched.attempt.peers
    assert (peer.host, rank_of(launched.attempt.command), rank_of(peer.command)) == ("b", "0", "1")
    assert peer.command[0] == pair.holds[1].host.settings.stacks[0], "its own interpreter"
    meeting = launched.attempt.command[launched.attempt.command.index("--dist-init-addr") + 1]
    assert meeting in peer.command
    assert meeting != f"127.0.0.1:{launched.launch.port}"
    names = await pair.family()
    ranks = [{name for name in each if "scheduler_TP" in name} for each in names]
    assert ranks[0] == {f"sglang::scheduler_TP{rank}" for rank in range(4)}
    assert ranks[1] == {f"sglang::scheduler_TP{rank}" for rank in range(4, 8)}
    assert all([await hold.host.holders() for hold in pair.holds])
    script = await pair.holds[1].host.read(f"{launched.launch.nodes[1].folder}/cmd.sh")
    assert b"--node-rank 1" in script


def rank_of(command: tuple[str, ...]) -> str:
    return command[command.index("--node-rank") + 1]


async def test_a_node_that_is_killed_ends_the_launch_and_is_named(pair: Pair):
    launched = await pair.launch(fault("silent-kill") + NODE_1)
    assert failed(launched) == ("scheduler-died-silently", "node 1 (b)", 1)
    assert launched.attempt.exit_code == -signal.SIGKILL
    node = launched.launch.nodes[1]
    assert (await log_at(node.host, node.folder)).decode().endswith(launched.log)
    assert "TP4] Load weight begin" in launched.log


async def test_a_node_that_never_joins_is_named_and_not_the_one_that_waits(pair: Pair):
    slow = fault("slow-start", phase="import", seconds=1e9) + NODE_1
    launched = await pair.launch(slow, stall_s=1.5)
    assert failed(launched) == ("startup-timeout-slow-import", "node 1 (b)", 1)


def lost(phase: Phase, *others: NotReady, rank: int = 0, **more: Any) -> NotReady:
    return replace(NotReady(None, phase, "", "reason"), rank=rank, others=others, **more)


STILL = {"stalled": True}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (
            lost(Phase.DISTRIBUTED, lost(Phase.DISTRIBUTED, rank=1, **STILL), **STILL),
            ("hang-nccl-init", "all nodes", 0),
        ),
        (
            lost(Phase.KV_CACHE, lost(Phase.WEIGHTS, rank=1, **STILL), **STILL),
            ("unknown", "node 1 (b)", 1),
        ),
        (
            lost(Phase.WEIGHTS, lost(Phase.START, rank=1, **STILL), port_stolen=True),
            ("port-in-use-http", "node 0 (a)", 0),
        ),
        (
            lost(Phase.WEIGHTS, lost(Phase.WEIGHTS, **STILL), rank=1, child_lost=True),
            ("scheduler-died-silently", "node 1 (b)", 1),
        ),
    ],
    ids=["all-still", "one-behind", "port", "child"],
)
def test_which_node_is_named(outcome: NotReady, expected: tuple[str, str, int]):
    names = [Host(name, HostSettings(), LocalTransport(name, "python3")) for name in "ab"]
    nodes = [Node(Hold(host, "t", 60), MARK, 1, CommandLine((), {})) for host in names]
    _, diagnosis = explain(outcome, Launch(tuple(nodes), "http://a"), DOCTOR)
    where = diagnosis.explanation.partition(": ")[0]
    assert (diagnosis.mode, where, diagnosis.node) == expected


class Look:
    """What a look at a node that lives and says nothing brings."""

    running = True


def test_a_node_that_waits_for_one_at_work_does_not_hang():
    waiting, working = Signs.of_all(2)
    waiting.life = waiting.progress = waiting.life - 100
    patience = Patience(1000, 10, 1)
    assert waiting.given_up(Look(), patience) is None
    working.life -= 100
    assert waiting.given_up(Look(), patience) == "no sign of life for 10 s"
