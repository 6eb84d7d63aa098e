"""`validate`, `clean`, `hosts`, `ps`, `stop`: what a host is, and what runs there."""

from typing import Annotated, Literal

from cyclopts import Parameter

from flows.cli.application import AsJson, app, ended, out, print_json
from tasks.domain.errors import ExitStatus


@app.command
def validate(
    host: str = "local",
    *,
    as_json: AsJson = False,
    against: str | None = None,
    unpersist: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Judge the software stacks of a host: does it load, does the ABI match, can it serve?

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    as_json
        Print one JSON object a stack.
    against
        A sweep of the store (its id, the beginning of its id, or `latest`): judge the stacks for
        that sweep, and say what changed since it measured them.
    unpersist
        Only take out again what `persist: sitecustomize` wrote into the host's stacks.
    """
    from flows.commands.hosts import unpersist_host
    from flows.commands.stacks import print_stacks, stacks_json, validate_host
    from settings.application import load

    async def judge() -> int:
        settings, _ = load()
        if unpersist:
            return await unpersist_host(host, settings, out)
        judged = await validate_host(host, settings, against)
        if as_json:
            for report in stacks_json(judged):
                print_json(report)
        else:
            print_stacks(out, judged, against)
        fit = any(each.report.fit for each in judged)
        return ExitStatus.OK if fit else ExitStatus.HOST_NEEDS_PERSON

    return ended(judge())


@app.command
def clean(
    host: str = "local",
    *,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    policy: Literal["own", "user", "all"] | None = None,
) -> None:
    """Free the GPUs of a host and wait until they are.

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    dry_run
        Only print who would be ended.
    policy
        Whose processes may be ended: those of our own runs, those of our user, or all (only on
        a host that is declared dedicated, where it is the default).
    """
    from flows.commands.hosts import clean_host
    from settings.application import load

    async def free() -> None:
        settings, _ = load()
        await clean_host(host, settings, out, policy, dry_run=dry_run)

    ended(free())


@app.command
def hosts(*, as_json: AsJson = False) -> int:
    """List the configured hosts: reachable or not, their GPUs, who holds them.

    Parameters
    ----------
    as_json
        Print one JSON list.
    """
    from flows.commands.hosts import hosts_json, list_hosts, print_hosts
    from settings.application import load

    async def look() -> int:
        settings, _ = load()
        rows = await list_hosts(settings)
        if as_json:
            print_json(hosts_json(rows))
            return ExitStatus.OK
        return print_hosts(out, rows)

    return ended(look())


@app.command
def ps(host: str = "local", *, as_json: AsJson = False) -> None:
    """Show what of ours runs on a host.

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    as_json
        Print one JSON list.
    """
    from flows.commands.hosts import list_ours, ours_json, print_ours
    from settings.application import load
    from tasks.hosts.connect import connect

    async def look() -> None:
        settings, _ = load()
        async with connect(host, settings.host(host)) as reached:
            found = await list_ours(reached)
        print_json(ours_json(found)) if as_json else print_ours(out, host, found)

    ended(look())


@app.command
def stop(host: str = "local", *, force: Annotated[bool, Parameter(negative=())] = False) -> None:
    """End what of ours runs on a host: every server that a sweep left there.

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    force
        Also where a sweep that is alive holds the host; its trial fails then.
    """
    from flows.commands.hosts import stop_ours
    from settings.application import load
    from tasks.hosts.connect import connect

    async def end() -> None:
        settings, _ = load()
        async with connect(host, settings.host(host)) as reached:
            ended = await stop_ours(reached, force=force)
        out.print(f"{host}: {ended} ended" if ended else f"{host}: nothing of ours runs there")

    ended(end())
