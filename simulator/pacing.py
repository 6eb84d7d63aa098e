"""Real time for the engine: when a step is decided, when its tokens leave, and how late that was.

Steps follow each other on the engine's clock, not on the moment that this process woke up: a late
wake-up is made good, not carried on. What a step sends is built while the pretend GPU computes, so
that at the deadline nothing is left to do but to send.

A step is decided `grace_s` after it begins where that step follows an idle engine or a finished
request. A client that sends its next request at once thus takes part in the very next step, as it
does in `simulator.truth`, where clients take no time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from simulator.connection import Connection
from simulator.engine import Engine, Request, Step
from simulator.lateness import Lateness
from simulator.streams import Job
from simulator.wire import response

Send = tuple[Connection, bytes, Request]
GRACE_MAX_S = 0.003


@dataclass(slots=True, eq=False)
class Task:
    """A job on its way to a connection."""

    job: Job
    connection: Connection


@dataclass(slots=True)
class Pacer:
    """Turns submitted jobs into chunks that leave on time. All moments are monotonic seconds."""

    engine: Engine
    on_step: Callable[[Step], None]
    on_complete: Callable[[Connection], None]
    on_finished: Callable[[Job], None]
    not_before_s: float = 0.0
    lateness: Lateness = field(default_factory=Lateness)
    tasks: dict[Request, Task] = field(default_factory=dict)
    owed: set[Connection] = field(default_factory=set)
    grace_s: float = 0.0
    _sends: list[Send] | None = None
    _due_s: float = 0.0
    _start_s: float = 0.0
    _decide_at_s: float | None = None

    def __post_init__(self) -> None:
        shortest = self.engine.speed.decode_s(1) * self.engine.time_scale
        self.grace_s = min(GRACE_MAX_S, 0.3 * shortest)

    @property
    def busy(self) -> bool:
        return bool(self.tasks)

    def submit(self, job: Job, connection: Connection, now_s: float) -> None:
        self.tasks[job.request] = Task(job, connection)
        self.owed.add(connection)
        self.engine.submit(job.request, now_s)
        if self._sends is None and self._decide_at_s is None:
            self._start_s = max(now_s, self._due_s, self.not_before_s)
            self._decide_at_s = self._start_s + self.grace_s

    def abandon(self, connection: Connection) -> None:
        """Give up what a closed connection was waiting for."""
        if connection not in self.owed:
            return
        self.owed.discard(connection)
        gone = [task for task in self.tasks.values() if task.connection is connection]
        for task in gone:
            del self.tasks[task.job.request]
            if not task.job.request.done:
                self.engine.abort(task.job.request)

    def deadline_s(self) -> float | None:
        """Return when `tick` has something to do, or None where only a request can wake it."""
        return self._decide_at_s if self._sends is None else self._due_s

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        if self._sends is not None and now_s >= self._due_s:
            self._deliver(self._sends)
        if self._sends is None and self._decide_at_s is not None and now_s >= self._decide_at_s:
            self._decide()

    def _decide(self) -> None:
        self._decide_at_s = None
        step = self.engine.step(self._start_s)
        if step is None:
            return
        self.on_step(step)
        self._due_s = step.end_s
        self._sends = [
            send
            for request, count in self.engine.finish(step)
            if (task := self.tasks.get(request)) and (send := self._send(task, count))
        ]

    def _send(self, task: Task, count: int) -> Send | None:
        job = task.job
        if job.request.done:
            self.on_finished(job)
        if job.asked.stream:
            return task.connection, job.format.events(job, count), job.request
        if not job.request.done:
            return None
        return task.connection, response(200, job.format.body(job)), job.request

    def _deliver(self, sends: list[Send]) -> None:
        due_s, clock, record = self._due_s, time.monotonic, self.lateness.record
        self._sends = None
        for connection, data, _ in sends:
            connection.send(data)
            record(clock() - due_s)
        finished = [(connection, request) for connection, _, request in sends if request.done]
        for connection, request in finished:
            if self.tasks.pop(request, None):
                self.owed.discard(connection)
                self.on_complete(connection)
        self._start_s = due_s
        if finished or not self.engine.idle:
            self._decide_at_s = due_s + (self.grace_s if finished else 0.0)
