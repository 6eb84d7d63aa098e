"""The look-alike of `python -m sglang.launch_server`: takes its flags, prints its log, serves.

    SIMULATOR_ROOT=… SIMULATOR_SCENARIO=… python -m simulator.launch_server --model-path … --tp 8

SIMULATOR_ROOT names the pretend host's folder (its devices are held open), SIMULATOR_SCENARIO a
scenario file; without them the host is healthy, has no devices and runs in real time.
"""

import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from simulator import flags, logs, messages, processes, scenario
from simulator.boot import WARMUP_S, Boot, SchedulerFailed, kill_silently
from simulator.launch import Launch, plan, read_model_config
from simulator.nodes import Nodes
from simulator.server import Server, listen
from simulator.service import Service

DRAIN_CHECK_S = 5.0  # SGLang looks every so often whether the last request is done
PORT_TAKEN_EXIT = 3
BAD_SCENARIO_EXIT = 64  # of the simulator alone: no exit status of SGLang


class SchedulerDied(Exception):
    """A child ended while the server was starting."""


@dataclass(slots=True)
class Supervisor:
    """A server's life after its flags were read: start, serve, drain, end."""

    launch: Launch
    boot: Boot
    started_s: float = field(default_factory=time.monotonic)
    terminating: bool = False
    draining: bool = False
    server: Server | None = None
    wake_writer: socket.socket | None = None

    def run(self) -> int:
        signal.signal(signal.SIGCHLD, self._died_while_starting)
        try:
            self.boot.run()
        except SchedulerFailed as failure:
            self._fail(failure.traceback, failure.rank)
        except SchedulerDied:
            return 1
        return self._serve()

    def _died_while_starting(self, number: int, frame: FrameType | None) -> None:
        for pid, code in processes.reap():
            name = self.boot.children.pop(pid, "")
            if name.startswith("scheduler"):
                died, exited, traceback = messages.scheduler_dead(int(name[10:]), code)
                logs.log(died)
                logs.log(exited)
                logs.write(traceback)
                processes.end_all(self.boot.owned())
                raise SchedulerDied

    def _fail(self, traceback: str, rank: int) -> NoReturn:
        """Die of a scheduler's exception: it reports, signals us, and we take all down with us."""
        logs.log(f"Scheduler hit an exception: {traceback}", self.launch.rank(rank))
        self._die_of_child()

    def _die_of_child(self) -> NoReturn:
        logs.log(messages.SIGQUIT)
        processes.end_all(self.boot.owned())
        kill_silently()
        raise AssertionError("unreachable: SIGKILL can't be survived")

    def _serve(self) -> int:
        if self.boot.nodes.rank:
            return self._serve_nobody()
        arguments = self.launch.configuration
        logs.uvicorn(f"Started server process [{os.getpid()}]")
        logs.uvicorn("Waiting for application startup.")
        logs.uvicorn("Application startup complete.")
        try:
            if "port-taken" in self.launch.faults:
                occupy(arguments.host, arguments.port)
            listener = listen(arguments.host, arguments.port)
        except OSError as error:
            return self._port_taken(error)
        logs.uvicorn(
            f"Uvicorn running on http://{arguments.host}:{arguments.port} (Press CTRL+C to quit)"
        )
        return self._loop(self._open(listener))

    def _serve_nobody(self) -> int:
        """Answer /health and nothing else, as a node does that isn't the first."""
        arguments = self.launch.configuration
        where = f"{arguments.host}:{arguments.port}"
        logs.log(f"Starting dummy health check server at {where}")
        try:
            listener = listen(arguments.host, arguments.port)
        except OSError as error:
            return self._port_taken(error)
        return self._loop(self._open(listener))

    def _port_taken(self, error: OSError) -> int:
        """Fail to bind as the real server does: its warm-up reaches the stranger on the port."""
        where = (self.launch.configuration.host, self.launch.configuration.port)
        logs.uvicorn(
            f"[Errno {error.errno}] error while attempting to bind on address {where!r}: "
            f"{(error.strerror or '').lower()}",
            "ERROR",
        )
        logs.uvicorn("Waiting for application shutdown.")
        logs.log(messages.READY)
        logs.uvicorn("Application shutdown complete.")
        processes.end_all(self.boot.owned())
        return PORT_TAKEN_EXIT

    def _warm_up(self) -> None:
        """Log the warm-up that SGLang sends to itself, and claim to be ready."""
        if self.boot.nodes.rank:
            return
        if not self.launch.configuration.arguments.get("skip_server_warmup"):
            logs.access("127.0.0.1:41790", "GET", "/model_info", 200, "OK")
            time.sleep(WARMUP_S * self.launch.scenario.launch_time_scale)
            logs.access("127.0.0.1:41804", "POST", "/generate", 200, "OK")
        logs.log(messages.READY)

    def _open(self, listener: socket.socket) -> Server:
        """Build what serves, and listen to signals, before anybody is told that we are ready."""
        _raise_descriptor_limit()
        service = Service(self.launch)
        service.startup_s = time.monotonic() - self.started_s
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        server = Server(listener, service, reader, self._on_signal)
        self.wake_writer = writer  # kept: its descriptor must not become a client's
        signal.set_wakeup_fd(writer.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_terminate)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.boot.nodes.watch()
        self._arm(server)
        return server

    def _loop(self, server: Server) -> int:
        self.server = server
        self._warm_up()
        _quiet_collector()
        self._on_signal()  # a child may have died, or we been told to end, before this
        server.run()
        server.close()
        lateness = server.service.pacer.lateness.figures()
        figures = " ".join(f"{name}={value}" for name, value in lateness.items())
        logs.log(f"simulator: lateness of sent chunks: {figures}")
        processes.end_all(self.boot.owned())
        return 0

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminating = True

    def _on_signal(self) -> None:
        """Look after a signal: did a scheduler die, or are we asked to end?"""
        for pid, _ in processes.reap():
            scheduler = self.boot.children.pop(pid, "").startswith("scheduler")
            # A signal to the whole process group ends the children too: no reason to cry.
            if scheduler and not self.terminating:
                self._die_of_child()
        if not self.terminating and (gone := self.boot.nodes.lost()):
            self._fail(messages.peer_gone(gone), self.boot.ranks[0])
        if self.terminating and not self.draining and self.server:
            self.draining = True
            logs.log(
                "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
            )
            self.server.alarm_s = time.monotonic() + self._drain_check_s()
            self.server.on_alarm = self._drain

    def _drain_check_s(self) -> float:
        return max(0.01, DRAIN_CHECK_S * self.launch.scenario.launch_time_scale)

    def _drain(self) -> None:
        assert self.server is not None, "draining needs a server"
        rids = [task.job.id for task in self.server.service.pacer.tasks.values()]
        unsent = any(connection.unsent for connection in self.server.connections.values())
        logs.log(
            f"Gracefully exiting... Remaining number of requests {len(rids)}. "
            f"Remaining requests remaining_rids={rids}."
        )
        if rids or unsent:
            self.server.alarm_s = time.monotonic() + self._drain_check_s()
        else:
            self.server.stopped = True

    def _arm(self, server: Server) -> None:
        """Set up the faults that strike a server which is already serving."""
        faults, service = self.launch.faults, server.service
        if early := faults.get("health-early"):
            service.ready_s = time.monotonic() + early.number("seconds", 60)
            service.pacer.not_before_s = service.ready_s
        for kind, strike in (("death-mid-load", self._die_mid_load), ("silent-kill", self._vanish)):
            fault = faults.get(kind)
            if not fault:
                continue
            if "after_s" in fault.details:
                server.alarm_s = time.monotonic() + fault.number("after_s", 0)
                server.on_alarm = strike
            elif kind == "death-mid-load" or "after_requests" in fault.details:
                service.fatal_request = int(fault.number("after_requests", 8))
                service.on_fatal_request = strike

    def _die_mid_load(self) -> None:
        rank = self.boot.ranks[-1]
        prefix = self.launch.rank(rank)
        logs.log(f"Scheduler hit an exception: {messages.illegal_access()}", prefix)
        logs.write(messages.watchdog_echo(rank))
        self._die_of_child()

    def _vanish(self) -> None:
        processes.end_all(self.boot.owned())
        kill_silently()


def occupy(host: str, port: int) -> None:
    """Let another process take the port, as somebody else's server would."""
    stranger = listen(host, port)
    stranger.setblocking(True)
    processes.in_child(lambda: _answer_for_ever(stranger))
    stranger.close()


def _answer_for_ever(listener: socket.socket) -> None:
    body = b'{"model_path":"/models/of-somebody-else","status":"ready"}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
    answer += b"content-length: %d\r\n\r\n%b" % (len(body), body)
    while True:
        client, _ = listener.accept()
        client.recv(65_536)
        client.sendall(answer)
        client.close()


def _raise_descriptor_limit() -> None:
    """Allow as many connections as the system does, as SGLang does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _quiet_collector() -> None:
    """Keep the garbage collector from pausing the pacing: what is alive now stays alive."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


def main(argv: Sequence[str] | None = None) -> int:
    try:
        host = scenario.load(os.environ.get("SIMULATOR_SCENARIO"))
    except scenario.ScenarioError as error:
        logs.write(f"simulator.launch_server: {error}\n")
        return BAD_SCENARIO_EXIT
    configuration = flags.parse(sys.argv[1:] if argv is None else argv, host.sglang_version)
    config = read_model_config(configuration.model_path)
    launch = plan(configuration, host, config or {})
    stack = os.environ.get("SIMULATOR_STACK", "")
    if "abi-undefined-symbol" in launch.faults:
        logs.write(messages.import_failure())
    elif config is None:
        logs.write(messages.model_missing(configuration.model_path))
    elif "cudnn-check" in launch.faults:
        logs.write(messages.cudnn(stack))
    else:
        nodes = Nodes.of(configuration.arguments)
        return Supervisor(launch, Boot(launch, nodes)).run()
    return 1


if __name__ == "__main__":
    sys.exit(main())
