"""`sglang-sweep plan`: the trials of a sweep and their exact command lines, touching no host."""

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from settings.application import Settings
from settings.host import Host
from settings.nodes import at_same_place, hosts_of
from settings.quantities import show_duration
from settings.sweep import Sweep
from tasks.domain.configuration import Trial
from tasks.search.grid import excluded, plan_trials
from tasks.server.command import CommandLine, Place, command_line


def planned_on(sweep: Sweep, settings: Settings) -> Mapping[str, Host]:
    """The sweep's hosts, or one with default values: a plan needs no host.

    Raises `InvalidSettings` where a host that is configured lacks what its servers need.
    """
    if sweep.host in {"local", *settings.hosts}:
        return hosts_of(settings, sweep)
    return {sweep.host: Host(cluster_address=sweep.host)}


def plan_json(sweep: Sweep, settings: Settings) -> Mapping[str, object]:
    """The plan for machines."""
    hosts = planned_on(sweep, settings)
    trials = [_trial_json(trial, hosts) for trial in plan_trials(sweep)]
    return {
        "name": sweep.name,
        "host": sweep.host,
        "launches": len(trials) * sweep.search.repeats,
        "repeats": sweep.search.repeats,
        "excluded": excluded(sweep),
        "trials": trials,
    }


def _trial_json(trial: Trial, hosts: Mapping[str, Host]) -> Mapping[str, object]:
    (_, command), *peers = _commands(trial, hosts).items()
    return {
        "trial_id": trial.trial_id,
        "baseline": trial.baseline,
        "axes": trial.axes,
        "command": command.shell,
        "argv": command.argv,
        "env": command.env,
        "peers": {name: peer.shell for name, peer in peers},
    }


def print_plan(console: Console, sweep: Sweep, settings: Settings) -> None:
    """The plan for a person: a line that counts, then each trial with its command line."""
    hosts = planned_on(sweep, settings)
    trials = plan_trials(sweep)
    for number, trial in enumerate(trials, 1):
        mark = "  (baseline)" if trial.baseline else ""
        console.print(
            Text(f"{number:>3}  {trial.trial_id}  {trial.label}{mark}", style="bold"),
            soft_wrap=True,
        )
        commands = _commands(trial, hosts)
        for name, command in commands.items():
            where = f"on {name}: " if len(commands) > 1 else ""
            console.print(Text(f"     {where}{command.shell}"), soft_wrap=True)
    if sweep.host not in {"local", *settings.hosts}:
        unknown = f"host {sweep.host!r} is not configured yet: shown with defaults"
        console.print(Text(unknown, style="yellow"), soft_wrap=True)
    levels = sum(w.most_levels for w in sweep.workloads)
    total = (
        f"{len(trials)} trials on {sweep.host}, {excluded(sweep)} combinations excluded, "
        f"{sweep.search.repeats} launch(es) each, {levels} level(s) a launch"
    )
    if sweep.search.budget is not None:
        each = show_duration(sweep.search.budget / (len(trials) * sweep.search.repeats))
        allowed = f"the budget leaves {each} for each launch with its load; the rest stays pending"
        console.print(Text(allowed), soft_wrap=True)
    console.print(Text("flags are spelled as the target's SGLang knows them at the launch", "dim"))
    console.print(Text(total), soft_wrap=True)


def _commands(trial: Trial, hosts: Mapping[str, Host]) -> dict[str, CommandLine]:
    """The command line on each host, as far as it is known without asking it: its flags' newest
    names and free ports are settled at the launch."""
    asked = trial.configuration
    first = next(iter(hosts.values()))
    stack = asked.stack or first.stacks[0]
    commands = {}
    for rank, (name, host) in enumerate(list(hosts.items())[: asked.nodes]):
        command = command_line(
            asked,
            at_same_place(stack, first, host),
            host.launch,
            port=host.port,
            address=host.listen_address,
            place=Place(rank, f"{first.cluster_address}:{first.port + 1}")
            if asked.nodes > 1
            else None,
        )
        commands[name] = CommandLine(command.argv, {**host.env, **command.env})
    return commands
