"""The epoll loop: it sends what is due, stamps what arrives, and keeps what has ended.

Where the kernel stamps the arriving packets
(SO_TIMESTAMPNS) the time of a read is the arrival of its last packet, however late this program
comes to read it; elsewhere it is the clock at the read. A stamp is CLOCK_REALTIME; an offset turns
it into CLOCK_MONOTONIC, measured anew twice a second, so that a stepped clock is noticed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import sys
from array import array
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Any, BinaryIO

from .expiry import expire, expire_connecting
from .follow import next_turn
from .plain import Plain
from .reading import arrival, kernel_reader
from .sight import Sight
from .stream import (
    ABANDONED,
    COMPLETE,
    ENOUGH,
    EOF,
    REFUSED,
    RESET,
    UNTIL_EOF,
    Connection,
    Stream,
    clock_offset_ns,
    now_ns,
    resolve,
)

TICK_NS = 500_000_000
CLOCK_STEP_NS = 100_000
SO_TIMESTAMPNS: int = getattr(socket, "SO_TIMESTAMPNS", 35)
_BATCH = 64  # events handled between two looks at what is due
_SENDS = 16  # in one go, in a closed loop: a larger burst would wait in the server's queue
_MOST_UNWRITTEN = 256  # streams that have ended; they are written when there is nothing to read
_WRITES = 4  # of more than those, in one go: all at once would keep it from reading
_PACK_FROM = 256  # stamps of a stream
_IN, _OUT = 1, 4  # EPOLLIN and EPOLLOUT
_TLS_WAITS = (2, 3)  # ssl.SSL_ERROR_WANT_READ and _WRITE
_FINE_WAIT_NS = 3_000_000
_MOST_NAP_NS = 1_000_000
_LEAST_NAP_NS = 50_000  # what it takes to fall asleep and wake up again
_NAPS_PER_GAP = 16
_LEAST_READS_PER_NAP = 2
_CONNECT_NS = 5_000_000_000


class Loop:
    """Sends the job's requests and reads the answers, until all have ended or somebody says stop.

    In the closed loop a request is due the moment that a slot becomes free; in the open loop
    (`paced`) at its own time, however many are in flight.
    """

    def __init__(self, job: dict[str, Any], streams: deque[Stream], out: BinaryIO) -> None:
        self.where, self.nowhere = resolve(job["host"], job["port"])
        self.paced: bool = job["paced"]
        self.limit: int = job["slots"] or sys.maxsize
        self.preconnect: int = job["preconnect"]
        self.timeout_ns = int(job["timeout_s"] * 1e9)
        self.connect_s: float = job["connect_s"]
        self.pending = streams
        self.out = out
        self.poll = select.epoll()
        self.plain = Plain(**job["plain"]) if job.get("plain") else None
        self.connections: dict[int, Connection] = {}
        self.idle: list[Connection] = []
        self.freed: deque[int] = deque()
        self.deadlines: deque[Stream] = deque()
        self.finished: deque[Stream] = deque()
        self.lags = array("q")  # how late reads were, and how many of them, in turn
        self.in_flight = self.opened = self.unstamped = self.bytes = 0
        self.done = self.failed = self.done_reads = self.retries = 0
        self.skipped: list[Stream] = []
        self.tell_ended: bool = job.get("tell_ended", False)
        self.ended: list[tuple[int, int, int]] = []  # each answer since the parent was last told
        self.start = self.clock_step = 0
        self.last_stamp = b""
        self.offset = clock_offset_ns()
        self.stopped = ""
        self.abandon = self.turn_due = self.reached = False
        self.tick = self.wake = self.nap = self.told_reads = self.told_unstamped = 0
        self.sight = Sight()
        self.host: str = job["host"]
        self.shake_hands: Callable[[Connection], bool] | None = None
        self.read = kernel_reader(self)
        if job.get("tls"):
            from .tls import speak_tls  # not for nothing: it takes longer than all the rest

            speak_tls(self)

    # -- life

    def connect(self) -> None:
        """Open the connections that the job wants before the start, and wait until they stand."""
        with contextlib.suppress(OSError):  # a server that refuses is met again, and told, later
            for _ in range(self.preconnect):
                self._open()
        until = now_ns() + _CONNECT_NS
        while any(not c.connected for c in self.connections.values()) and now_ns() < until:
            for fd, mask in self.poll.poll(0.05):
                self._handle(fd, mask)

    def run(self, start: int, tell: Callable[[Loop, int], None]) -> None:
        """Carry the load from `start` (CLOCK_MONOTONIC ns) to its end; `tell` twice a second.

        Most turns of this loop find a few tokens and nothing else to do, and cost little for it.
        """
        self.start = start
        self.tick = start + TICK_NS
        self._plan_wake()
        connections, read, handle = self.connections, self.read, self._handle
        sight = self.sight
        now = seen = now_ns()
        ready: list[tuple[int, int]] = []
        while self.in_flight or (self.pending and not self.stopped):
            more = len(ready) == _BATCH
            ready = self.poll.poll(0, _BATCH) if more else self._wait(self.wake - now)
            looked = now_ns()
            for fd, mask in ready:
                connection = connections.get(fd)
                if mask == _IN and connection is not None:
                    read(connection)
                else:
                    handle(fd, mask)
            now = now_ns()
            if now - seen > sight.longest:
                sight.blink(seen, now)
            if len(ready) < _BATCH:
                seen = looked
            if self.last_stamp:
                self.lags.append(now - arrival(self, self.last_stamp))
                self.lags.append(len(ready))
                self.last_stamp = b""
            if self.turn_due or now >= self.wake:
                self._turn(now, tell)
            elif self.finished and not more:
                self._keep(1)
        self._keep(len(self.finished))
        self._watch_clock()

    def _turn(self, now: int, tell: Callable[[Loop, int], None]) -> None:
        """Do what is due: send, time out, write out, tell; and find out when something will be."""
        if self.abandon:
            for connection in list(self.connections.values()):
                self.lose(connection, ABANDONED, self.stopped)
        self.turn_due = False
        self._dispatch(now)
        expire(self, now)
        self._keep(min(len(self.finished) - _MOST_UNWRITTEN, _WRITES))
        if now >= self.tick:
            self.tick = now + TICK_NS
            self._watch_clock()
            expire_connecting(self, now)
            self._pack()
            self.plan_nap()
            tell(self, now)
        self._plan_wake()

    def _plan_wake(self) -> None:
        """Find the next moment that brings something to do even if no byte arrives."""
        self.wake = self.tick
        if self.deadlines:
            self.wake = min(self.wake, self.deadlines[0].deadline)
        if self.pending and self.in_flight < self.limit and not self.stopped:
            self.wake = min(self.wake, self.start + self.pending[0].due)

    def plan_nap(self) -> None:
        """Find out how long to let the next reads gather before looking, by the last half second.

        The kernel's stamps don't depend on when we look, and a look at many sockets costs hardly
        more than at one. It must stay so short, against the gap between two tokens of a stream,
        that none of a stream's tokens arrive together.
        """
        reads, self.told_reads = self.reads - self.told_reads, self.reads
        unstamped, self.told_unstamped = self.unstamped - self.told_unstamped, self.unstamped
        gap_ns = TICK_NS * self.in_flight // max(1, reads)
        nap = min(_MOST_NAP_NS, gap_ns // _NAPS_PER_GAP)
        worthwhile = nap * reads >= _LEAST_READS_PER_NAP * TICK_NS and not unstamped
        self.nap = nap if worthwhile else 0
        self.sight.learn(self.in_flight, reads, TICK_NS)

    def _wait(self, delay: int) -> list[tuple[int, int]]:
        """Wait for the sockets at most so many ns, to a few microseconds; or let reads gather.

        However little there is to do, it looks often enough to know that it wasn't kept from it.
        """
        nap = min(self.nap, delay)
        if nap > _LEAST_NAP_NS:
            sleep(nap / 1e9)
            return self.poll.poll(0, _BATCH)
        delay = min(delay, self.sight.longest // 2)
        if delay > _FINE_WAIT_NS:  # epoll waits whole milliseconds, rounded up
            return self.poll.poll((delay - 1_000_000) / 1e9, _BATCH)
        if delay > 0:
            select.select([self.poll], (), (), delay / 1e9)
        return self.poll.poll(0, _BATCH)

    def stop(self, reason: str) -> None:
        """Send nothing more, and give up what is in flight unless there is simply enough."""
        self.stopped, self.abandon, self.turn_due = reason, reason != ENOUGH, True

    def close(self) -> None:
        """Close whatever is still open."""
        for connection in self.connections.values():
            connection.sock.close()
        self.connections.clear()
        self.poll.close()

    # -- sending

    def _dispatch(self, now: int) -> None:
        most = self.done + self.in_flight + _SENDS
        while self.pending and self.in_flight < self.limit and not self.stopped:
            if not self.paced and self.done + self.in_flight >= most:
                self.turn_due = True
                break
            due = self.start + self.pending[0].due
            if due > now:
                break
            stream = self.pending.popleft()
            freed = self.freed.popleft() if self.freed else self.start
            stream.due = due if self.paced else freed
            stream.deadline = now + self.timeout_ns
            self.deadlines.append(stream)
            self.in_flight += 1
            self._assign(stream, self.idle.pop() if self.idle else None)

    def _assign(self, stream: Stream, connection: Connection | None) -> None:
        try:
            connection = connection or self._open()
            if self.paced and self.preconnect and not self.idle:
                self._open()  # so that the next one finds a connection that stands
        except OSError as error:
            self._end(stream, REFUSED, now_ns(), error.strerror or str(error))
            return
        connection.stream = stream
        if connection.connected:
            self._send(connection, stream)

    def _open(self) -> Connection:
        if self.where is None:
            self.refused(errno.ECONNREFUSED)
            raise OSError(errno.EHOSTUNREACH, self.nowhere)
        family, address = self.where
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # no kernel stamps here: such reads are counted
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        status = sock.connect_ex(address)
        if status not in (0, errno.EINPROGRESS):
            sock.close()
            self.refused(status)
            raise OSError(status, os.strerror(status))
        connection = Connection(sock)
        self.connections[connection.fd] = connection
        self.poll.register(connection.fd, _IN | _OUT)
        self.opened += 1
        return connection

    def _send(self, connection: Connection, stream: Stream) -> None:
        """Send the request, or what of it is still unsent."""
        rest = connection.unsent
        if not rest:
            stream.sent = now_ns()
        try:
            sent = connection.sock.send(rest or stream.request)
        except OSError as error:
            tls_waits = self.shake_hands is not None and error.errno in _TLS_WAITS
            if not tls_waits and not isinstance(error, BlockingIOError):
                self.lose(connection, RESET, error.strerror or str(error))
                return
            sent = 0
        connection.unsent = (rest or memoryview(stream.request))[sent:]
        if bool(rest) != bool(connection.unsent):
            self.poll.modify(connection.fd, _IN | _OUT if connection.unsent else _IN)

    def writable(self, connection: Connection) -> None:
        """Send, or go on with connecting."""
        if connection.connected and connection.stream is not None:
            self._send(connection, connection.stream)
            return
        status = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status:
            self.refused(status)
            self.lose(connection, REFUSED, os.strerror(status))
            return
        if self.shake_hands is not None and not self.shake_hands(connection):
            return
        connection.connected = self.reached = True
        self.poll.modify(connection.fd, _IN)
        if connection.stream is None:
            self._rest(connection)
        else:
            self._send(connection, connection.stream)

    def refused(self, status: int) -> None:
        """Nobody listens any more: what is in flight may end, but nothing new is sent."""
        if status == errno.ECONNREFUSED and self.start and not self.stopped:
            self.stopped = "refused"

    # -- receiving

    def _handle(self, fd: int, mask: int) -> None:
        connection = self.connections.get(fd)
        if connection is None:
            self._listen(fd)
            return
        if not connection.connected or mask & _OUT:
            self.writable(connection)
        if mask & ~_OUT and connection.connected and fd in self.connections:
            self.read(connection)

    # -- ending

    def complete(self, connection: Connection, stream: Stream, arrived: int) -> None:
        connection.stream = None
        if stream.keep_alive and not connection.unsent:
            self._rest(connection)
        else:
            self._drop(connection)
        self._end(stream, COMPLETE, arrived, "")

    def _rest(self, connection: Connection) -> None:
        connection.waited = True
        self.idle.append(connection)

    def lose(self, connection: Connection, ending: int, error: str) -> None:
        """A connection is gone; its stream ends with it, or starts anew where that is fair."""
        self._drop(connection)
        stream, connection.stream = connection.stream, None
        if stream is None:
            return
        # The server may have closed a kept-alive connection before it saw this request.
        stale = connection.waited and not stream.pieces and ending in (EOF, RESET)
        if stale and not stream.retries and not self.stopped:
            stream.retries = 1
            self.retries += 1
            self._assign(stream, None)
            return
        whole = ending == EOF and stream.frame == UNTIL_EOF
        self._end(stream, COMPLETE if whole else ending, now_ns(), "" if whole else error)

    def _drop(self, connection: Connection) -> None:
        if connection.stream is None and connection in self.idle:
            self.idle.remove(connection)
        self.connections.pop(connection.fd, None)
        connection.sock.close()  # which also takes it out of the epoll set

    def _end(self, stream: Stream, ending: int, closed: int, error: str) -> None:
        stream.keep_rest()
        stream.ending, stream.closed, stream.error = ending, closed, error
        self.in_flight -= 1
        self.done += 1
        self.failed += ending != COMPLETE
        self.done_reads += stream.reads
        self.freed.append(closed)
        self.finished.append(stream)
        self.turn_due = True
        if self.tell_ended and ending == COMPLETE:
            first = stream.first_event()
            self.ended.append((stream.index, first - stream.due, closed - stream.due))
        if stream.next is not None:
            if next_turn(stream, stream.next):
                self.pending.appendleft(stream.next)
            else:
                self.skipped.append(stream.next)

    def _keep(self, count: int) -> None:
        """Write out so many of the streams that have ended, and let go of their memory."""
        for _ in range(count):
            stream = self.finished.popleft()
            self.bytes += stream.write_to(self.out, self.offset)
            stream.release()

    def _live(self) -> list[Stream]:
        return [c.stream for c in self.connections.values() if c.stream is not None]

    def _pack(self) -> None:
        for stream in self._live():
            if len(stream.stamps) >= _PACK_FROM:
                stream.pack()

    # -- watching

    def _listen(self, fd: int) -> None:
        """Hear the parent (descriptor 0) or a signal; leave at once when the parent is gone."""
        said = os.read(fd, 4096)
        if fd != 0:
            return
        if not said:
            with contextlib.suppress(OSError):
                os.unlink(self.out.name)
            os._exit(1)
        self.stop(said.decode("utf-8", "replace").partition(" ")[2].strip() or "stopped")

    @property
    def reads(self) -> int:
        """Reads so far, of the streams that have ended and of those that go on."""
        return self.done_reads + sum(stream.reads for stream in self._live())

    def _watch_clock(self) -> None:
        offset = clock_offset_ns()
        if abs(offset - self.offset) > CLOCK_STEP_NS:
            self.clock_step = max(self.clock_step, abs(offset - self.offset))
            for stream in (*self._live(), *self.finished):
                stream.shift(self.offset - offset)
            self.offset = offset
