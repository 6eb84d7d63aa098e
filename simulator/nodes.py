"""The nodes of one server over several hosts: they meet at --dist-init-addr, and need each other.

Rank 0 listens there, as torch's store does; the others knock until it answers. What a node learns
of another's end is what its sockets tell: while they start, nothing that it says anything about
(NCCL waits), and while they serve, gloo's `Connection closed by peer`.
"""

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

KNOCK_S = 0.02


@dataclass(slots=True)
class Nodes:
    """This node among the others; a server on one host is a node alone."""

    count: int = 1
    rank: int = 0
    address: str = ""
    others: list[socket.socket] = field(default_factory=list)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Nodes":
        return cls(arguments["nnodes"], arguments["node_rank"], arguments["dist_init_addr"] or "")

    def ranks(self, tp_size: int) -> range:
        """Return the tensor-parallel ranks that run on this node."""
        each = max(1, tp_size // self.count)
        return range(self.rank * each, (self.rank + 1) * each)

    def join(self) -> None:
        """Wait until every node is there."""
        if self.count == 1:
            return
        host, _, port = self.address.rpartition(":")
        if self.rank == 0:
            with socket.create_server((host, int(port))) as listener:
                self.others = [listener.accept()[0] for _ in range(self.count - 1)]
        else:
            self.others = [_knock(host, int(port))]
        self.meet()

    def meet(self) -> None:
        """Wait until every node has come so far; for ever where one has died, as NCCL does."""
        if self.rank:
            self._say()
            self._hear()
        else:
            self._hear()
            self._say()

    def _say(self) -> None:
        for other in self.others:
            with contextlib.suppress(OSError):
                other.sendall(b"!")

    def _hear(self) -> None:
        for other in self.others:
            said = b""
            with contextlib.suppress(OSError):
                said = other.recv(1)
            while not said:
                signal.pause()

    def watch(self) -> None:
        """Have a signal sent to this process whenever a node's socket has news."""
        signal.signal(signal.SIGIO, _notice)
        for other in self.others:
            fcntl.fcntl(other, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(other, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)

    def lost(self) -> str:
        """Return the address of a node that is gone, or nothing."""
        for other in self.others:
            with contextlib.suppress(BlockingIOError):
                return "" if _says_something(other) else self._name(other)
        return ""

    def _name(self, other: socket.socket) -> str:
        with contextlib.suppress(OSError):
            host, port = other.getpeername()
            return f"[{host}]:{port}"
        return f"[{self.address.rpartition(':')[0]}]"


def _says_something(other: socket.socket) -> bool:
    try:
        return bool(other.recv(1, socket.MSG_PEEK))
    except ConnectionError:
        return False


def _notice(number: int, frame: FrameType | None) -> None:
    """Only be woken."""


def _knock(host: str, port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection((host, port))
        except OSError:
            time.sleep(KNOCK_S)
