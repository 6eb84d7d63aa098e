"""Log in to a machine as `ssh` would: ~/.ssh/config, agent, keys; its host key always checked."""

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import asyncssh
from asyncssh import SSHClientConnection, SSHClientConnectionOptions, SSHKey

from tasks.domain.errors import HostError, HostUnreachable

KEEPALIVE_S, KEEPALIVES = 3.0, 2
"""A connection that has been silent for (KEEPALIVES + 1) x KEEPALIVE_S = 9 s counts as broken."""

_MOST_JUMPS = 8
_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")

Lost = Callable[[SSHClientConnection], None]


@dataclass(frozen=True, slots=True)
class Account:
    """Where to log in and with what; `name` is the host's in the settings.

    `address` is an alias of ~/.ssh/config, a name or an address, with `user@` before it or not.
    """

    name: str
    address: str
    passphrase: str | None = None
    connect_timeout_s: float = 10.0


async def log_in(account: Account, on_lost: Lost) -> SSHClientConnection:
    """Open a connection, through jump hosts where ~/.ssh/config names them.

    Raises `HostUnreachable` where another attempt may succeed, and `HostError` with the way out
    where only a person can help: an unknown or changed host key, no key that is accepted.
    """
    return await _hop(account, account.address, (), None, on_lost, 0)


class _Client(asyncssh.SSHClient):
    """Keep the host key that nobody knows for the message, and tell when the connection is lost."""

    def __init__(self, on_lost: Lost) -> None:
        self._on_lost = on_lost
        self._connection: SSHClientConnection | None = None
        self.offered: tuple[str, SSHKey] | None = None

    def connection_made(self, conn: SSHClientConnection) -> None:
        self._connection = conn

    def validate_host_public_key(self, host: str, addr: str, port: int, key: SSHKey) -> bool:
        self.offered = (addr, key)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._on_lost(self._connection)


async def _hop(
    account: Account,
    target: str,
    port: int | tuple[()],
    before: SSHClientConnection | None,
    on_lost: Lost,
    depth: int,
) -> SSHClientConnection:
    """Log in to one machine, from the last jump host before it or, at first, from here."""
    user, _, host = target.rpartition("@")
    options = await _options(account, host, port, user)
    if before is None:
        before = await _jumped(account, options, depth)
    client = _Client(on_lost)
    try:
        # Not asyncssh's own time-out: its `wait_for` may swallow a cancellation (before 3.12).
        async with asyncio.timeout(account.connect_timeout_s):
            connection = await asyncssh.connect(
                host,
                port,
                options=options,
                tunnel=before,
                known_hosts=_known_hosts(account, options),
                client_factory=lambda: client,
            )
    except BaseException as error:
        if before is not None:
            before.abort()
        if isinstance(error, Exception):
            raise _translated(account, options, error, client.offered) from error
        raise
    if before is not None:
        connection.set_tunnel(before)
    return connection


async def _jumped(
    account: Account, options: SSHClientConnectionOptions, depth: int
) -> SSHClientConnection | None:
    """Log in to the jump hosts of a machine, one through the other; None where it has none."""
    jumps = options.tunnel if isinstance(options.tunnel, str) else ""
    if jumps.lower() in ("", "none"):
        return None
    if depth >= _MOST_JUMPS:
        where = f"ProxyJump of {options.orig_host}"
        raise HostError(account.name, f"~/.ssh/config: {where} leads in a circle")
    last: SSHClientConnection | None = None
    for jump in jumps.split(","):
        place, port = _split_port(jump.strip())
        last = await _hop(account, place, port, last, _ignore, depth + 1)
    return last


async def _options(
    account: Account, host: str, port: int | tuple[()], user: str
) -> SSHClientConnectionOptions:
    """What ~/.ssh/config and the settings say about a machine."""
    try:
        options: SSHClientConnectionOptions = await SSHClientConnectionOptions.construct(
            config=(),
            host=host,
            port=port,
            username=user or (),
            passphrase=account.passphrase,
            connect_timeout=None,
            login_timeout=account.connect_timeout_s,
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=KEEPALIVES,
        )
        return options
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        way_out = f"set passphrase in [hosts.{account.name}], or add the key to an SSH agent"
        raise HostError(account.name, f"a private key can't be read: {error}; {way_out}") from error
    except (asyncssh.ConfigParseError, OSError, ValueError) as error:
        raise HostError(account.name, f"~/.ssh/config: {error}") from error


def _known_hosts(account: Account, options: SSHClientConnectionOptions) -> asyncssh.SSHKnownHosts:
    """The host keys that are trusted; there is no way to trust any."""
    own = cast(Sequence[str], options.config.get("UserKnownHostsFile", _KNOWN_HOSTS))
    shared = cast(Sequence[str], options.config.get("GlobalKnownHostsFile", _GLOBAL_KNOWN_HOSTS))
    texts = [_text(path) for path in (*own, *shared)]
    try:
        return asyncssh.import_known_hosts("\n".join(texts))
    except ValueError as error:
        raise HostError(account.name, f"known_hosts can't be read: {error}") from error


def _text(path: str) -> str:
    """A file's text; nothing where there is none."""
    try:
        return Path(os.path.expanduser(path)).read_text(errors="replace")
    except OSError:
        return ""


def _translated(
    account: Account,
    options: SSHClientConnectionOptions,
    error: Exception,
    offered: tuple[str, SSHKey] | None,
) -> HostError:
    """What went wrong with a login, in a line with a way out."""
    where = f"{options.host} port {options.port}"
    match error:
        case HostError():
            return error
        case asyncssh.HostKeyNotVerifiable() if offered is not None:
            return HostError(account.name, _untrusted(account, options, *offered))
        case asyncssh.HostKeyNotVerifiable() | asyncssh.KeyExchangeFailed():
            return HostError(account.name, f"{where}: {error.reason}")
        case asyncssh.PermissionDenied():
            way_out = (
                "add a key that it accepts to an SSH agent or as IdentityFile to ~/.ssh/config; "
                f"one that is encrypted needs passphrase in [hosts.{account.name}]"
            )
            refused = f"{options.username}@{where} accepts none of our keys"
            return HostError(account.name, f"{refused} ({error.reason}); {way_out}")
        case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
            return HostError(account.name, f"a private key can't be read: {error}")
        case TimeoutError():
            limit = f"no login within {account.connect_timeout_s:g} s"
            return HostUnreachable(account.name, f"{where}: {limit}; is it up, is the network?")
    return HostUnreachable(account.name, f"{where} can't be reached: {_reason(error)}")


def _reason(error: Exception) -> str:
    """What an exception says, never nothing."""
    return str(getattr(error, "reason", "") or error) or type(error).__name__


def _untrusted(
    account: Account, options: SSHClientConnectionOptions, addr: str, key: SSHKey
) -> str:
    """Say which key was offered, and the command that accepts just this one."""
    host = options.host_key_alias or options.host
    entry = host if options.port == 22 else f"[{host}]:{options.port}"
    found = _known_hosts(account, options).match(
        host, addr, None if options.port == 22 else options.port
    )
    exported = " ".join(key.export_public_key().decode().split()[:2])
    accept = f"echo {shlex.quote(f'{entry} {exported}')} >> ~/.ssh/known_hosts"
    shown = f"{exported.split()[0]} {key.get_fingerprint()}"
    if found[0]:
        return (
            f"the host key of {entry} has CHANGED to {shown}: somebody may be in between. If it "
            f"was set up anew: ssh-keygen -f ~/.ssh/known_hosts -R {shlex.quote(entry)} && {accept}"
        )
    return (
        f"the host key of {entry} is unknown: {shown}. If that is its fingerprint "
        f"(ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub there), accept it: {accept}"
    )


def _split_port(place: str) -> tuple[str, int | tuple[()]]:
    """A jump host's `[user@]host[:port]`, also as ssh://; IPv6 addresses stand in brackets."""
    place = place.removeprefix("ssh://")
    host, colon, port = place.rpartition(":")
    if colon and port.isdecimal() and ("]" in host or ":" not in host):
        return host.replace("[", "").replace("]", ""), int(port)
    return place.replace("[", "").replace("]", ""), ()


def _ignore(_: SSHClientConnection) -> None:
    """A jump host that is lost takes what goes through it along, and that is told."""
