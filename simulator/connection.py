"""One client's connection: bytes in, bytes out, and whether a response is under way."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from simulator.wire import CONTINUE, Head, HttpRequest, parse_head, parse_request


@dataclass(slots=True, eq=False)
class Connection:
    """A non-blocking socket with what it hasn't sent yet; `busy` while a response is owed."""

    sock: socket.socket
    peer: str
    on_blocked: Callable[["Connection"], None] = lambda _: None
    fd: int = -1
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    busy: bool = False
    close_after: bool = False
    closed: bool = False
    _head: Head | None = None

    def __post_init__(self) -> None:
        self.fd = self.sock.fileno()

    def send(self, data: bytes) -> None:
        """Send now what the kernel takes and keep the rest; a dead peer marks the connection."""
        if self.closed:
            return
        if self.unsent:
            self.unsent += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.closed = True
            return
        if sent < len(data):
            self.unsent += data[sent:]
            self.on_blocked(self)

    def flush(self) -> None:
        """Send what was kept."""
        data, self.unsent = bytes(self.unsent), bytearray()
        self.send(data)

    def receive(self) -> bool:
        """Read what there is; False when the peer has closed."""
        try:
            data = self.sock.recv(262_144)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.received += data
        return bool(data)

    def next_request(self) -> HttpRequest | None:
        """Take one whole request out of what was received, or None."""
        if self._head is None:
            self._head = parse_head(self.received)
            if self._head and self._head.expects_continue:
                self.send(CONTINUE)
        if self._head is None:
            return None
        found = parse_request(self.received, self._head)
        if found is None:
            return None
        request, size = found
        del self.received[:size]
        self._head = None
        self.close_after = request.closes
        return request
