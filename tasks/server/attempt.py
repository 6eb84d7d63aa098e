"""Make one attempt: start a server, wait until it is ready, explain it when it is not."""

import time
from dataclasses import replace

from tasks.domain.configuration import Attempt
from tasks.domain.diagnosis import Action, Diagnosis, Doctor, Phase
from tasks.hosts.host import Host
from tasks.server.command import CommandLine, command_line
from tasks.server.launch import Patience, start
from tasks.server.order import Launched, LaunchOrder
from tasks.server.readiness import NotReady, Ready, await_ready
from tasks.server.site import Site

LOG_TAIL = 1 << 18
"""Characters of a log that are kept for the page on the failure."""


async def make_attempt(order: LaunchOrder, site: Site, doctor: Doctor) -> Launched:
    """Launch once; the attempt says either how long it took or what went wrong."""
    port = await site.host.free_port(order.avoid_ports)
    command = on_host(
        command_line(
            order.configuration,
            order.stack.stack,
            site.host.settings.launch,
            port=port,
            address=site.host.settings.listen_address,
            known_flags=order.stack.facts.flags,
        ),
        site.host,
    )
    attempt = _opened(order, command)
    patience = _stretched(site.patience, order.ready_factor)
    launch = await start(site.hold, command, port, order.mark, patience)
    attempt = replace(attempt, folder=launch.folder)
    outcome = await await_ready(
        site.host, launch, patience, doctor.is_fatal, order.what, order.expected_s
    )
    match outcome:
        case Ready(ready_s):
            return Launched(replace(attempt, ready_s=ready_s), launch)
        case NotReady():
            diagnosis = explain(outcome, doctor)
            failed = replace(attempt, exit_code=outcome.exit_code, diagnosis=diagnosis)
            return Launched(failed, launch, outcome.log[-LOG_TAIL:])


def on_host(command: CommandLine, host: Host) -> CommandLine:
    """The command as the host runs it: with the host's own variables, each `~/` spelt out.

    No shell stands between us and the server, so nobody else would do it.
    """
    env = {**host.settings.env, **command.env}
    return CommandLine(
        tuple(host.expand(word) for word in command.argv),
        {name: host.expand(value) for name, value in env.items()},
    )


def explain(outcome: NotReady, doctor: Doctor) -> Diagnosis:
    """The cause of a launch that failed; `unknown` where even the doctor sees none."""
    diagnosis = doctor.diagnose(
        outcome.log, outcome.exit_code, outcome.phase, stalled=outcome.stalled
    )
    if diagnosis is None and outcome.port_stolen:
        return doctor.diagnosis_of("port-in-use-http", outcome.phase)
    if diagnosis is None and outcome.child_lost:
        return doctor.diagnosis_of("scheduler-died-silently", outcome.phase)
    return diagnosis or undiagnosed(outcome.phase, outcome.reason)


def undiagnosed(phase: Phase, reason: str) -> Diagnosis:
    """A failure whose log looks healthy."""
    explanation = f"{reason}; the log shows no known cause. Read server.log of this attempt."
    return Diagnosis("unknown", phase, Action.PRUNE, explanation)


def _opened(order: LaunchOrder, command: CommandLine) -> Attempt:
    return Attempt(
        number=order.number,
        repeat=order.repeat,
        command=command.argv,
        env=command.env,
        stack=order.stack.stack,
        started_at=time.time(),
        remedies=order.remedies,
    )


def _stretched(patience: Patience, factor: float) -> Patience:
    """More time to get ready, where a remedy says that this is the cure."""
    return replace(patience, ready_s=patience.ready_s * factor, stall_s=patience.stall_s * factor)
