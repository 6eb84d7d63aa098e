"""A real OpenSSH server on loopback, and a wire to it that a test can stall, cut and mend."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_port

PROGRAM = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AcceptEnv SIMULATOR_*
MaxStartups 200
LogLevel VERBOSE
{more}
"""


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> str:
    """Make a key pair; returns the public line."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-a", "2", "-f", str(path)]
    path.unlink(missing_ok=True)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path.with_name(f"{path.name}.pub").read_text()


class Sshd:
    """One server with a host key of its own and the keys that it lets in."""

    def __init__(self, folder: Path, more: str = "", port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.host_key = make_key(folder / "host_key").split()[:2]
        (folder / "authorized_keys").touch()
        content = CONFIG.format(port=self.port, folder=folder, more=more)
        (folder / "sshd_config").write_text(content)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def known_line(self) -> str:
        """Its line in a known_hosts file."""
        return f"[127.0.0.1]:{self.port} {' '.join(self.host_key)}\n"

    def let_in(self, public_line: str) -> None:
        with (self.folder / "authorized_keys").open("a") as file:
            file.write(public_line)

    def start(self) -> None:
        if PROGRAM is None:
            pytest.skip("no sshd here: apt-get install openssh-server")
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        with (self.folder / "sshd.log").open("ab") as log:
            command = [PROGRAM, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert time.monotonic() < deadline, (self.folder / "sshd.log").read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server and every connection of it; the commands that they run live on."""
        if self.process is None:
            return
        for pid in [*_descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    @property
    def logins(self) -> int:
        return (self.folder / "sshd.log").read_text().count("Accepted publickey")


def _descendants(pid: int) -> Iterator[int]:
    """The processes of sshd below a pid, not what they run."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (entry / "stat").read_text()
            parent = int(fields.rpartition(")")[2].split()[1])
            if parent == pid and "(sshd" in fields:
                yield from _descendants(int(entry.name))
                yield int(entry.name)


class Wire:
    """A TCP proxy in a thread of its own.

    `stall` stops every byte without a word, `cut` resets what is open, `refuse` resets what comes.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.flows = threading.Event()
        self.flows.set()
        self.refusing = False
        self.bytes = 0
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.refusing:
                    raise ConnectionRefusedError
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                _reset(near)
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.add((near, far))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.flows.wait()
                self.bytes += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        self.flows.clear()

    def cut(self) -> None:
        for pair in list(self._pairs):
            for end in pair:
                _reset(end)
            self._pairs.discard(pair)

    def mend(self) -> None:
        """Let bytes through again; what was stalled is gone for good, as after a time-out."""
        self.refusing = False
        if not self.flows.is_set():
            self.cut()
        self.flows.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self.flows.set()


def _reset(end: socket.socket) -> None:
    """Close with a RST instead of a FIN."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class Home:
    """A home folder with ~/.ssh in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ssh = folder / ".ssh"
        self.ssh.mkdir(parents=True, mode=0o700)
        self.key = make_key(self.ssh / "id_ed25519")

    def configure(self, alias: str, port: int, more: str = "") -> None:
        with (self.ssh / "config").open("a") as file:
            file.write(f"Host {alias}\n  HostName 127.0.0.1\n  Port {port}\n{more}\n")

    def trust(self, sshd: Sshd, port: int = 0) -> None:
        line = sshd.known_line
        if port:
            line = line.replace(f":{sshd.port} ", f":{port} ")
        with (self.ssh / "known_hosts").open("a") as file:
            file.write(line)


@contextlib.contextmanager
def ssh_agent(folder: Path, *keys: Path) -> Iterator[str]:
    """A real ssh-agent that holds some keys; yields its socket."""
    path = str(folder / "agent.sock")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        while not os.path.exists(path):
            time.sleep(0.02)
        for key in keys:
            subprocess.run(
                ["ssh-add", "-q", str(key)], env={**os.environ, "SSH_AUTH_SOCK": path}, check=True
            )
        yield path
    finally:
        agent.terminate()
        agent.wait()


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> float:
    """Wait until something holds; returns how long that took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout_s, "it did not come true in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - started
