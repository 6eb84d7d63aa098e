"""`clean`, `hosts`, `ps`, `stop`: what a host is, and what of ours runs there."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from settings.application import Settings
from settings.host import Host as HostSettings
from tasks.domain.errors import ExitStatus, HostError, HostLocked
from tasks.gpus.clean import clean, gpu_facts, plan_for
from tasks.gpus.plan import Policy, age, name_them
from tasks.gpus.render import plan_view
from tasks.hosts.connect import connect
from tasks.hosts.host import Host, HostProcess
from tasks.hosts.lock import hold, holder_of
from tasks.stack.persist import unpersist

_GRACE_S = 10.0


async def unpersist_host(name: str, settings: Settings, out: Console) -> int:
    """Take our block out of the sitecustomize of every stack of a host; a line each."""
    owner = "sglang-sweep validate --unpersist"
    async with (
        connect(name, settings.host(name)) as host,
        hold(host, owner, uuid.uuid4().hex, settings.lease, 0.0),
    ):
        told = [await _unpersisted(host, stack) for stack in host.settings.stacks]
    for line, done in told:
        out.print(Text(line, style="" if done else "red"), soft_wrap=True)
    return ExitStatus.OK if all(done for _, done in told) else ExitStatus.HOST_NEEDS_PERSON


async def _unpersisted(host: Host, stack: str) -> tuple[str, bool]:
    """What came of it in a line, and whether all is well."""
    try:
        found = await unpersist(host, stack)
    except HostError as error:
        return str(error), False
    there = found.done == "removed"
    return f"{stack}: {'removed from' if there else 'nothing of ours in'} {found.path}", True


async def clean_host(
    name: str,
    settings: Settings,
    out: Console,
    policy: Literal["own", "user", "all"] | None,
    *,
    dry_run: bool,
) -> None:
    """Print who would be ended on a host; unless it is only asked for, end them under its lock.

    Raises `HostError` naming whoever is still there, and `HostLocked` where a sweep lives.
    """
    chosen = None if policy is None else Policy(policy)
    async with connect(name, settings.host(name)) as host:
        found, sight = await plan_for(host, chosen)
        out.print(plan_view(name, found, sight, nested=host.identity.nested_pids))
        if dry_run:
            return
        if found.blockers:
            out.print("waiting for those in the way ...")
        async with hold(host, "sglang-sweep clean", uuid.uuid4().hex, settings.lease, 0.0):
            cleaned = await clean(host, chosen)
        removed = f", {len(cleaned.removed)} leftovers removed" if cleaned.removed else ""
        out.print(f"clean after {cleaned.took_s:.1f} s, {len(cleaned.ended)} ended{removed}")


@dataclass(frozen=True, slots=True)
class HostRow:
    """A configured host: where it is, whether it answers, its GPUs, who holds it."""

    name: str
    address: str
    reachable: bool
    gpus: str = ""
    holder: str = ""
    fault: str = ""


async def list_hosts(settings: Settings) -> list[HostRow]:
    """Look at every configured host, all at once; `local` too where it is the only one."""
    hosts = settings.hosts or {"local": settings.host("local")}
    return list(await asyncio.gather(*(_look(name, host) for name, host in hosts.items())))


async def _look(name: str, settings: HostSettings) -> HostRow:
    address = settings.address or "this machine"
    try:
        async with connect(name, settings) as host:
            gpus, holder = await asyncio.gather(gpu_facts(host), holder_of(host))
    except HostError as error:
        fault = str(error).removeprefix(f"host {name}: ")
        return HostRow(name, address, reachable=False, fault=fault)
    names = [gpu.name for gpu in gpus or ()]
    counted = ", ".join(f"{names.count(each)}x {each}" for each in dict.fromkeys(names))
    return HostRow(name, address, True, counted or "none that nvidia-smi shows", holder)


def hosts_json(rows: Sequence[HostRow]) -> list[Mapping[str, object]]:
    """The hosts for machines."""
    return [asdict(row) for row in rows]


def print_hosts(out: Console, rows: Sequence[HostRow]) -> int:
    """Print a line a host; the exit status says whether all could be reached."""
    table = Table("host", "address", "GPUs", "lock", box=None, pad_edge=False)
    for row in rows:
        gpus = Text(row.gpus) if row.reachable else Text("not reachable", style="red")
        table.add_row(Text(row.name, style="bold"), row.address, gpus, row.holder or "free")
    out.print(table)
    for row in rows:
        if row.fault:
            out.print(Text(f"{row.name}: {row.fault}", style="red"), soft_wrap=True)
    reachable = all(row.reachable for row in rows)
    return ExitStatus.OK if reachable else ExitStatus.HOST_NEEDS_PERSON


async def list_ours(host: Host) -> list[HostProcess]:
    """What was launched from this host's run folder and still runs."""
    return [process for process in await host.occupants() if process.launched_here]


def ours_json(processes: Sequence[HostProcess]) -> list[Mapping[str, object]]:
    """Processes for machines."""
    return [asdict(process) for process in processes]


def print_ours(out: Console, host: str, processes: Sequence[HostProcess]) -> None:
    """Print a line a process, under the launch that it belongs to."""
    if not processes:
        out.print(f"{host}: nothing of ours runs there")
        return
    ordered = sorted(processes, key=lambda each: (each.mark or "", each.pid))
    for mark, launched in groupby(ordered, key=lambda each: each.mark or ""):
        out.print(Text(f"launch {mark.rstrip('/')}", style="bold"), soft_wrap=True)
        table = Table("pid", "age", "GPUs", "command", box=None, pad_edge=False)
        for process in launched:
            interpreter, _, arguments = process.command.partition(" ")
            command = f"{PurePosixPath(interpreter).name} {arguments}"
            held = str(len(process.devices)) if process.devices else ""
            table.add_row(str(process.pid), age(process.age_s), held, Text(command.strip()))
        out.print(Padding.indent(table, 2))


async def stop_ours(host: Host, *, force: bool) -> int:
    """End every launch of ours on a host; how many processes that were.

    Raises `HostLocked` where a sweep that lives holds the host, unless forced, and `HostError`
    naming whoever outlived SIGKILL.
    """
    holder = await holder_of(host)
    if holder and not force:
        way_out = "interrupt it where it runs, or say --force"
        raise HostLocked(host.name, f"{holder}; {way_out}")
    marks = sorted({process.mark or "" for process in await list_ours(host)})
    outcomes = [await host.stop(mark, _GRACE_S) for mark in marks if mark]
    left = [process for outcome in outcomes for process in outcome.left]
    if left:
        raise HostError(host.name, f"outlived SIGKILL: {name_them(left)}; it needs a person")
    return sum(len(outcome.ended) for outcome in outcomes)
