"""Make one attempt: start a server, wait until it is ready, explain it when it is not."""

import time
from collections.abc import Sequence
from dataclasses import replace

from settings.nodes import at_same_place
from tasks.domain.configuration import Attempt, PeerCommand
from tasks.domain.diagnosis import Action, Diagnosis, Doctor, Phase
from tasks.domain.sglang import PORTS_OF_NODES
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold
from tasks.server.command import CommandLine, Place, command_line
from tasks.server.launch import Launch, Node, Patience, mark_of, start
from tasks.server.order import Launched, LaunchOrder
from tasks.server.readiness import NotReady, Ready, await_ready
from tasks.server.site import Site

LOG_TAIL = 1 << 18
"""Characters of a log that are kept for the page on the failure."""

_PHASES = list(Phase)


async def make_attempt(order: LaunchOrder, site: Site, doctor: Doctor) -> Launched:
    """Launch once; the attempt says either how long it took or what went wrong."""
    nodes = await nodes_of(order, site)
    attempt = _opened(order, nodes)
    patience = _stretched(site.patience, order.ready_factor)
    launch = await start(nodes, patience)
    attempt = replace(attempt, folder=launch.folder)
    outcome = await await_ready(launch, patience, doctor.is_fatal, order.what, order.expected_s)
    match outcome:
        case Ready(ready_s, spells):
            return Launched(replace(attempt, ready_s=ready_s, spells=spells), launch)
        case NotReady():
            guilty, diagnosis = explain(outcome, launch, doctor)
            failed = replace(
                attempt, exit_code=guilty.exit_code, diagnosis=diagnosis, spells=outcome.spells
            )
            return Launched(failed, launch, guilty.log[-LOG_TAIL:])


async def nodes_of(order: LaunchOrder, site: Site) -> list[Node]:
    """What is started on which host: of several, all meet at a port of the first."""
    holds = site.holds_for(order.configuration)
    ports, meeting = await _ports(holds, order.avoid_ports)
    nodes = []
    for rank, (hold, port) in enumerate(zip(holds, ports, strict=True)):
        command = command_line(
            order.configuration,
            at_same_place(order.stack.stack, site.host.settings, hold.host.settings),
            hold.host.settings.launch,
            port=port,
            address=hold.host.settings.listen_address,
            known_flags=order.stack.facts.flags,
            place=Place(rank, meeting) if len(holds) > 1 else None,
        )
        nodes.append(Node(hold, mark_of(order.mark, rank), port, on_host(command, hold.host)))
    return nodes


async def _ports(holds: Sequence[Hold], avoid: Sequence[int]) -> tuple[list[int], str]:
    """Where each node listens, and where all meet; hosts of one machine don't share a port."""
    first, *others = [hold.host for hold in holds]
    ports = [await first.free_port(avoid)]
    if not others:
        return ports, ""
    meeting = await first.free_port((*avoid, *ports), PORTS_OF_NODES)
    taken = {first.identity.boot_id: [*ports, *range(meeting, meeting + PORTS_OF_NODES)]}
    for host in others:
        there = taken.setdefault(host.identity.boot_id, [])
        ports.append(await host.free_port((*avoid, *there)))
        there.append(ports[-1])
    return ports, f"{first.settings.cluster_address}:{meeting}"


def on_host(command: CommandLine, host: Host) -> CommandLine:
    """The command as the host runs it: with the host's own variables, each `~/` spelt out.

    No shell stands between us and the server, so nobody else would do it.
    """
    env = {**host.settings.env, **command.env}
    return CommandLine(
        tuple(host.expand(word) for word in command.argv),
        {name: host.expand(value) for name, value in env.items()},
    )


def explain(outcome: NotReady, launch: Launch, doctor: Doctor) -> tuple[NotReady, Diagnosis]:
    """The node that failed, and of what; `unknown` where even the doctor sees no cause."""
    suspects = _suspects((outcome, *outcome.others))
    number, diagnosis = doctor.blame([each.end for each in suspects])
    guilty = suspects[number]
    if diagnosis is None and guilty.port_stolen:
        diagnosis = doctor.diagnosis_of("port-in-use-http", guilty.phase)
    if diagnosis is None and guilty.child_lost:
        diagnosis = doctor.diagnosis_of("scheduler-died-silently", guilty.phase)
    diagnosis = diagnosis or undiagnosed(guilty.phase, guilty.reason)
    together_still = guilty.stalled and len(suspects) > 1
    where = "all nodes" if together_still else launch.where(guilty.rank)
    return guilty, placed(diagnosis, guilty.rank, where)


def _suspects(ends: Sequence[NotReady]) -> list[NotReady]:
    """The nodes that may have failed first: the rest only wait for them.

    Where all stand still, these are the ones that have come least far.
    """
    failed = [end for end in ends if not end.stalled]
    behind = min(_PHASES.index(end.phase) for end in ends)
    return failed or [end for end in ends if _PHASES.index(end.phase) == behind]


def placed(diagnosis: Diagnosis, rank: int, where: str) -> Diagnosis:
    """Say which node failed; nothing is said of a server on one host."""
    if not where:
        return diagnosis
    return replace(diagnosis, node=rank, explanation=f"{where}: {diagnosis.explanation}")


def undiagnosed(phase: Phase, reason: str) -> Diagnosis:
    """A failure whose log looks healthy."""
    explanation = f"{reason}; the log shows no known cause. Read server.log of this attempt."
    return Diagnosis("unknown", phase, Action.PRUNE, explanation)


def _opened(order: LaunchOrder, nodes: Sequence[Node]) -> Attempt:
    first, *others = nodes
    return Attempt(
        number=order.number,
        repeat=order.repeat,
        command=first.command.argv,
        env=first.command.env,
        stack=order.stack.stack,
        started_at=time.time(),
        remedies=order.remedies,
        peers=tuple(PeerCommand(o.host.name, o.command.argv, o.command.env) for o in others),
    )


def _stretched(patience: Patience, factor: float) -> Patience:
    """More time to get ready, where a remedy says that this is the cure."""
    return replace(patience, ready_s=patience.ready_s * factor, stall_s=patience.stall_s * factor)
