"""Against a server in this process: what a real sshd does too seldom to be waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncssh
import pytest

from settings.host import Host as HostSettings
from tasks.domain.errors import ConnectionBroken, HostError, HostUnreachable
from tasks.hosts.ssh.transport import SshTransport
from tests.hosts.sshd import Home

Work = Callable[[asyncssh.SSHServerProcess[bytes]], object]


class Stage:
    """A server whose commands do what a test says."""

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        self.work: Work = lambda process: process.exit(0)
        self.seen: list[str | None] = []

    def handle(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        self.seen.append(process.command)
        self.work(process)


@pytest.fixture
async def stage(tmp_path: Path, home: Home) -> AsyncIterator[Stage]:
    stage = Stage(HostSettings(address="box", connect_timeout=3.0, reconnect_patience=2.0))
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[key],
        authorized_client_keys=str(home.ssh / "id_ed25519.pub"),
        process_factory=stage.handle,
        encoding=None,
    )
    home.configure("box", server.get_port())
    line = f"[127.0.0.1]:{server.get_port()} {key.export_public_key().decode()}"
    (home.ssh / "known_hosts").write_text(line)
    yield stage
    server.close()
    await server.wait_closed()


async def run(transport: SshTransport, *words: str, timeout_s: float = 5.0):
    return await transport.run(words, stdin=b"", timeout_s=timeout_s, max_output_bytes=100)


@pytest.fixture
async def transport(stage: Stage) -> AsyncIterator[SshTransport]:
    transport = SshTransport("box", stage.settings, "box")
    yield transport
    await transport.close()


async def test_a_command_replaces_the_login_shell(stage: Stage, transport: SshTransport) -> None:
    assert (await run(transport, "echo", "a b", "$c")).ok
    assert stage.seen == ["exec echo 'a b' '$c'"]


async def test_a_channel_that_closes_without_a_status_is_a_break(
    stage: Stage, transport: SshTransport
) -> None:
    stage.work = lambda process: process.channel.close()
    with pytest.raises(ConnectionBroken, match="without an exit status"):
        await run(transport, "true")


async def test_a_signal_that_nobody_knows_is_a_failure(
    stage: Stage, transport: SshTransport
) -> None:
    stage.work = lambda process: process.exit_with_signal("XYZ@example.org")
    assert (await run(transport, "true")).exit_code == 255


async def test_a_command_that_says_nothing_runs_out_of_time(
    stage: Stage, transport: SshTransport
) -> None:
    stage.work = lambda process: None
    assert (await run(transport, "true", timeout_s=0.3)).exit_code is None


async def test_a_server_that_refuses_sessions_is_named(
    stage: Stage, transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.hosts.ssh.transport._TRY_AGAIN_S", 0.01)

    def refuse(process: object) -> None:
        raise AssertionError("not reached")

    stage.work = refuse
    connection = await transport._link.connection()

    async def no_session(*_: object, **__: object) -> None:
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "open failed")

    monkeypatch.setattr(connection, "create_session", no_session)
    with pytest.raises(HostError, match="opens no session: open failed; MaxSessions"):
        await run(transport, "true")


async def test_a_closed_transport_stays_closed(stage: Stage, transport: SshTransport) -> None:
    await run(transport, "true")
    await transport.close()
    with pytest.raises(HostUnreachable, match="was closed"):
        await run(transport, "true")


async def test_a_connection_that_its_server_ends_politely_is_opened_again(
    stage: Stage, transport: SshTransport
) -> None:
    stage.work = lambda process: process.channel.get_connection().close()
    with pytest.raises(ConnectionBroken):
        await run(transport, "true")
    stage.work = lambda process: process.exit(0)
    assert (await run(transport, "true")).ok
    assert transport.breaks == 1


@pytest.mark.parametrize("delay_ms", [0, 1, 3, 5, 8, 12])
async def test_a_login_that_is_cancelled_leaves_the_next_one_alone(
    stage: Stage, transport: SshTransport, delay_ms: int
) -> None:
    stage.work = lambda process: None
    running = asyncio.create_task(run(transport, "true"))
    await asyncio.sleep(delay_ms / 1000)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stage.work = lambda process: process.exit(0)
    assert (await run(transport, "true")).ok
