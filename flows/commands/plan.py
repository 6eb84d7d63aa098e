"""`sglang-sweep plan`: the trials of a sweep and their exact command lines, touching no host."""

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from settings.application import Settings
from settings.host import Host
from settings.quantities import show_duration
from settings.sweep import Sweep
from tasks.domain.configuration import Trial
from tasks.search.grid import excluded, plan_trials
from tasks.server.command import CommandLine, command_line


def host_of(sweep: Sweep, settings: Settings) -> Host:
    """The sweep's host, or one with default values: a plan needs no host."""
    return settings.hosts.get(sweep.host, Host())


def plan_json(sweep: Sweep, settings: Settings) -> Mapping[str, object]:
    """The plan for machines."""
    host = host_of(sweep, settings)
    trials = [_trial_json(trial, host) for trial in plan_trials(sweep)]
    return {
        "name": sweep.name,
        "host": sweep.host,
        "launches": len(trials) * sweep.search.repeats,
        "repeats": sweep.search.repeats,
        "excluded": excluded(sweep),
        "trials": trials,
    }


def _trial_json(trial: Trial, host: Host) -> Mapping[str, object]:
    command = _command(trial, host)
    return {
        "trial_id": trial.trial_id,
        "baseline": trial.baseline,
        "axes": trial.axes,
        "command": command.shell,
        "argv": command.argv,
        "env": command.env,
    }


def print_plan(console: Console, sweep: Sweep, settings: Settings) -> None:
    """The plan for a person: a line that counts, then each trial with its command line."""
    host = host_of(sweep, settings)
    trials = plan_trials(sweep)
    for number, trial in enumerate(trials, 1):
        mark = "  (baseline)" if trial.baseline else ""
        console.print(
            Text(f"{number:>3}  {trial.trial_id}  {trial.label}{mark}", style="bold"),
            soft_wrap=True,
        )
        console.print(Text(f"     {_command(trial, host).shell}"), soft_wrap=True)
    if sweep.host not in {"local", *settings.hosts}:
        unknown = f"host {sweep.host!r} is not configured yet: shown with defaults"
        console.print(Text(unknown, style="yellow"), soft_wrap=True)
    levels = sum(len(w.concurrency) + len(w.request_rate) for w in sweep.workloads)
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


def _command(trial: Trial, host: Host) -> CommandLine:
    """The command line as far as it is known without asking the host: its flags' newest names
    and a free port are settled at the launch."""
    interpreter = trial.configuration.stack or host.stacks[0]
    command = command_line(
        trial.configuration,
        interpreter,
        host.launch,
        port=host.port,
        address=host.listen_address,
    )
    return CommandLine(command.argv, {**host.env, **command.env})
