"""How a machine is logged in to: keys, agent, ~/.ssh/config, jump hosts, and host keys."""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.errors import HostError, HostUnreachable
from tasks.hosts.connect import connect
from tests.hosts.conftest import Box
from tests.hosts.sshd import Home, Sshd, make_key, ssh_agent
from tests.ports import free_port


async def says_hello(settings: HostSettings) -> str:
    async with connect("box", settings) as host:
        return (await host.run(["echo", "hello"])).stdout.decode().strip()


def by_hand(line: str) -> str:
    """Type a line into a shell."""
    done = subprocess.run(line, shell=True, check=True, capture_output=True, text=True)
    return done.stdout


async def test_by_a_key_of_the_home(box: Box) -> None:
    assert await says_hello(box.settings) == "hello"


async def test_by_user_and_alias(box: Box) -> None:
    settings = box.settings.model_copy(update={"address": "root@box"})
    assert await says_hello(settings) == "hello"


async def test_by_a_key_that_only_the_agent_has(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (box.home.ssh / "id_ed25519").unlink()
    box.sshd.let_in(make_key(tmp_path / "other"))
    with pytest.raises(HostError, match="accepts none of our keys"):
        await says_hello(box.settings)
    with ssh_agent(tmp_path, tmp_path / "other") as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        assert await says_hello(box.settings) == "hello"


async def test_by_an_encrypted_key_with_its_passphrase(box: Box) -> None:
    key = box.home.ssh / "id_ed25519"
    box.sshd.let_in(make_key(key, passphrase="open sesame"))
    with pytest.raises(HostError, match=r"encrypted needs passphrase in \[hosts\.box\]"):
        await says_hello(box.settings)
    wrong = HostSettings.model_validate({**box.settings.model_dump(), "passphrase": "wrong"})
    with pytest.raises(HostError, match="a private key can't be read"):
        await says_hello(wrong)
    right = HostSettings.model_validate({**box.settings.model_dump(), "passphrase": "open sesame"})
    assert await says_hello(right) == "hello"


async def test_by_the_identity_file_of_the_alias(box: Box, tmp_path: Path) -> None:
    (box.home.ssh / "id_ed25519").unlink()
    box.sshd.let_in(make_key(tmp_path / "elsewhere"))
    box.home.configure("keyed", box.wire.port, f"  IdentityFile {tmp_path}/elsewhere")
    settings = box.settings.model_copy(update={"address": "keyed"})
    assert await says_hello(settings) == "hello"


async def test_an_unknown_host_key_is_shown_with_the_command_that_accepts_it(box: Box) -> None:
    known = box.home.ssh / "known_hosts"
    known.unlink()
    with pytest.raises(HostError, match="is unknown: ssh-ed25519 SHA256:") as refused:
        await says_hello(box.settings)
    shown = await asyncio.to_thread(by_hand, f"ssh-keygen -lf {box.sshd.folder}/host_key.pub")
    assert shown.split()[1] in str(refused.value)
    assert "\n" not in str(refused.value)
    accept = re.search(r"accept it: (echo .*)$", str(refused.value))
    assert accept is not None
    await asyncio.to_thread(by_hand, accept[1])
    assert await says_hello(box.settings) == "hello"


async def test_a_changed_host_key_is_told_apart_and_can_be_replaced(box: Box) -> None:
    box.sshd.kill()
    make_key(box.sshd.folder / "host_key")
    box.sshd.start()
    with pytest.raises(HostError, match="has CHANGED to ssh-ed25519 SHA256:") as refused:
        await says_hello(box.settings)
    accept = re.search(r"(ssh-keygen -f .*)$", str(refused.value))
    assert accept is not None
    await asyncio.to_thread(by_hand, accept[1])
    assert await says_hello(box.settings) == "hello"


@pytest.mark.parametrize("line", ["UserKnownHostsFile none", "StrictHostKeyChecking no"])
async def test_no_configuration_switches_the_check_off(box: Box, line: str) -> None:
    (box.home.ssh / "known_hosts").unlink()
    box.home.configure("careless", box.wire.port, f"  {line}")
    settings = box.settings.model_copy(update={"address": "careless"})
    with pytest.raises(HostError, match="is unknown"):
        await says_hello(settings)


async def test_through_a_jump_host(box: Box, tmp_path: Path, home: Home) -> None:
    jump = Sshd(tmp_path / "jump")
    jump.let_in(home.key)
    jump.start()
    try:
        home.configure("jump", jump.port)
        home.configure("inner", box.sshd.port, "  ProxyJump jump")
        home.trust(box.sshd)
        settings = box.settings.model_copy(update={"address": "inner"})
        with pytest.raises(HostError, match=rf"\[127.0.0.1\]:{jump.port} is unknown"):
            await says_hello(settings)
        home.trust(jump)
        assert await says_hello(settings) == "hello"
        assert (jump.logins, box.sshd.logins) == (1, 1)
        home.configure("direct-jump", box.sshd.port, f"  ProxyJump root@127.0.0.1:{jump.port}")
        assert await says_hello(settings.model_copy(update={"address": "direct-jump"})) == "hello"
    finally:
        jump.kill()


async def test_jump_hosts_that_lead_in_a_circle_are_named(box: Box, home: Home) -> None:
    home.configure("one", 1, "  ProxyJump two")
    home.configure("two", 1, "  ProxyJump one")
    with pytest.raises(HostError, match="leads in a circle"):
        await says_hello(box.settings.model_copy(update={"address": "one"}))


async def test_nobody_there(box: Box, home: Home) -> None:
    home.configure("nobody", free_port())
    with pytest.raises(HostUnreachable, match=r"127\.0\.0\.1 port \d+ can't be reached"):
        await says_hello(box.settings.model_copy(update={"address": "nobody"}))


async def test_somebody_who_never_answers(box: Box) -> None:
    box.wire.stall()
    settings = box.settings.model_copy(update={"connect_timeout": 0.5})
    with pytest.raises(HostUnreachable, match=r"no login within 0\.5 s"):
        await says_hello(settings)


async def test_a_broken_configuration_is_named(box: Box) -> None:
    box.home.configure("bad", 22, "  Port twenty")
    with pytest.raises(HostError, match=r"~/.ssh/config: .*Port"):
        await says_hello(box.settings.model_copy(update={"address": "bad"}))
