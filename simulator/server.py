"""The event loop: one thread, epoll, sockets that never block, deadlines to the microsecond."""

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from simulator.connection import Connection
from simulator.service import Service
from simulator.wire import BadRequest, json_response

READ = select.EPOLLIN | select.EPOLLRDHUP
BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen; an address in use is the OSError that the real server reports."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


@dataclass(slots=True)
class Server:
    """Serves a service on a listening socket until `should_stop` says so.

    `wake_fd` becomes readable when a signal arrives (`signal.set_wakeup_fd`), so that a signal
    interrupts the wait; `on_wake` then runs.
    """

    listener: socket.socket
    service: Service
    wake: socket.socket
    on_wake: Callable[[], None]
    connections: dict[int, Connection] = field(default_factory=dict)
    alarm_s: float | None = None
    on_alarm: Callable[[], None] | None = None
    stopped: bool = False
    _poll: select.epoll = field(default_factory=select.epoll)

    def __post_init__(self) -> None:
        self._poll.register(self.listener.fileno(), select.EPOLLIN)
        self._poll.register(self.wake.fileno(), select.EPOLLIN)
        self.service.on_complete = self._complete

    def run(self) -> None:
        """Serve until `stopped`."""
        pacer = self.service.pacer
        while not self.stopped:
            for fd, event in self._wait(pacer.deadline_s()):
                self._dispatch(fd, event)
            pacer.tick(time.monotonic())
            if self.alarm_s is not None and time.monotonic() >= self.alarm_s and self.on_alarm:
                self.alarm_s = None
                self.on_alarm()

    def close(self) -> None:
        """Close what is open; bytes that no peer took yet are lost."""
        for connection in list(self.connections.values()):
            self._drop(connection)
        self.listener.close()
        self._poll.close()

    def _wait(self, deadline_s: float | None) -> list[tuple[int, int]]:
        """Wait for sockets until the next deadline.

        epoll counts in milliseconds, rounding up; the rest below one is waited for with select,
        which counts in microseconds.
        """
        moments = [m for m in (deadline_s, self.alarm_s) if m is not None]
        if not moments:
            return self._poll.poll()
        left_s = min(moments) - time.monotonic()
        if left_s >= 0.002:
            return self._poll.poll(left_s - 0.001)
        if left_s > 0 and not select.select([self._poll.fileno()], [], [], left_s)[0]:
            return []
        return self._poll.poll(0)

    def _dispatch(self, fd: int, event: int) -> None:
        if fd == self.listener.fileno():
            self._accept()
        elif fd == self.wake.fileno():
            with contextlib.suppress(BlockingIOError):
                self.wake.recv(4096)
            self.on_wake()
        elif connection := self.connections.get(fd):
            self._serve(connection, event)

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self.listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, f"{address[0]}:{address[1]}", self._settle)
            self.connections[connection.fd] = connection
            self._poll.register(connection.fd, READ)

    def _serve(self, connection: Connection, event: int) -> None:
        if event & select.EPOLLOUT:
            connection.flush()
        if event & (select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
            if not connection.receive():
                self._drop(connection)
                return
            self._answer(connection)
        self._settle(connection)

    def _answer(self, connection: Connection) -> None:
        """Answer the requests that are whole, one after the other."""
        while not connection.busy and not connection.closed:
            try:
                request = connection.next_request()
            except BadRequest as error:
                connection.send(json_response({"detail": str(error)}, 400))
                connection.closed = True
                return
            if request is None:
                return
            connection.busy = True
            answer = self.service.handle(connection, request, time.monotonic())
            if answer is not None:
                connection.send(answer)
            if connection not in self.service.pacer.owed:
                connection.busy = False
                connection.closed = connection.closed or connection.close_after

    def _complete(self, connection: Connection) -> None:
        """A generation's response is whole: the connection may ask again."""
        connection.busy = False
        if connection.close_after and not connection.unsent:
            connection.closed = True
        self._answer(connection)
        self._settle(connection)

    def _settle(self, connection: Connection) -> None:
        """Watch for what the connection waits for, or let go of it."""
        if connection.closed and not connection.unsent:
            self._drop(connection)
        elif connection.fd in self.connections:
            self._poll.modify(connection.fd, READ | (select.EPOLLOUT if connection.unsent else 0))

    def _drop(self, connection: Connection) -> None:
        if self.connections.pop(connection.fd, None) is None:
            return
        self.service.pacer.abandon(connection)
        connection.closed = True
        with contextlib.suppress(OSError):
            self._poll.unregister(connection.fd)
        connection.sock.close()
