"""Free the GPUs of a host and wait until they truly are.

`sleep 2` after a kill is not enough: the driver gives memory back after the process is gone.
Clean means that nobody who matters holds a device file and that every GPU's memory is back at
its idle level: `IDLE_MIB`, or where a display needs more, a level that has settled.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from settings.host import Host as HostSettings
from tasks.domain.errors import GpusNotFree, HostError, InputError
from tasks.domain.facts import GpuFacts
from tasks.domain.nvidia_smi import APPS_QUERY, GPU_QUERY, GpuApp, parse_apps, parse_gpus
from tasks.gpus.plan import (
    PROTECTED_NAMES,
    Kill,
    Plan,
    Policy,
    Protection,
    name_them,
    plan_cleanup,
)
from tasks.hosts.host import Host, HostProcess, Leftover

IDLE_MIB = 1024
"""Memory that a GPU nobody uses may have taken: driver, ECC and page tables stay well below."""

SETTLED_S = 5.0
"""Memory above `IDLE_MIB` counts as idle when it hasn't moved for so long and nobody is there."""

SETTLED_SHARE = 0.1
"""But only up to this share of the GPU: more than that is a job out of our sight."""

STILL_MIB = 64
"""A change of memory up to this isn't a movement: a screen is redrawn all the time."""

POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Sight:
    """A host at one moment: who is there, and the GPUs; None where nvidia-smi doesn't answer.

    `unseen` are those whom the driver knows to have GPU memory and whom /proc doesn't show,
    `leftovers` what our dead launches have left.
    """

    processes: tuple[HostProcess, ...]
    gpus: tuple[GpuFacts, ...] | None
    unseen: tuple[GpuApp, ...] = ()
    leftovers: tuple[Leftover, ...] = ()


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What cleaning took: who was ended and why, how long until clean, and the GPUs then.

    `removed` is what our dead launches had left.
    """

    policy: Policy
    ended: tuple[Kill, ...]
    took_s: float
    gpus: tuple[GpuFacts, ...] = ()
    removed: tuple[Leftover, ...] = ()


def allowed_policy(name: str, settings: HostSettings, policy: Policy | None = None) -> Policy:
    """The policy to use; without a wish, `all` where nobody else works, and `own` elsewhere.

    Raises `InputError` for `all` on a host that others use too.
    """
    chosen = policy or (Policy.ALL if settings.dedicated else Policy.OWN)
    if chosen is Policy.ALL and not settings.dedicated:
        fault = "policy 'all' needs `dedicated = true` in the host's settings; use own or user"
        raise InputError(f"host {name}", [fault])
    return chosen


async def look(host: Host) -> Sight:
    """See who holds the GPUs and how much of them is taken: one agent call, one nvidia-smi."""
    processes, gpus = await asyncio.gather(host.occupants(), gpu_facts(host))
    return Sight(tuple(processes), gpus)


async def look_closely(host: Host) -> Sight:
    """Look, and where somebody is there or memory is taken, ask the driver whose it is."""
    sight = await look(host)
    taken = [gpu for gpu in sight.gpus or () if gpu.memory_used_mib > IDLE_MIB]
    if sight.gpus is None or not (taken or any(p.devices for p in sight.processes)):
        return sight
    apps = parse_apps(await ask_nvidia_smi(host, APPS_QUERY) or "")
    return attributed(sight, apps, nested=host.identity.nested_pids)


def attributed(sight: Sight, apps: Sequence[GpuApp], *, nested: bool) -> Sight:
    """Tell each holder's GPU memory by the pids that the driver names.

    In a container (`nested`: a pid namespace of its own) the driver may name the host's pids, where
    the same number is another process: one pid that is no holder here, and none is believed.
    """
    holders = {process.pid for process in sight.processes if process.devices}
    unseen = tuple(app for app in apps if app.pid not in holders)
    if nested and unseen:
        return replace(sight, unseen=tuple(apps))
    taken: dict[int, float] = {}
    for app in apps:
        if app.pid in holders and app.memory_mib is not None:
            taken[app.pid] = taken.get(app.pid, 0.0) + app.memory_mib
    seen = tuple(replace(p, memory_mib=taken.get(p.pid)) for p in sight.processes)
    return replace(sight, processes=seen, unseen=unseen)


async def gpu_facts(host: Host) -> tuple[GpuFacts, ...] | None:
    """Ask nvidia-smi for the GPUs; None where it isn't there or fails."""
    text = await ask_nvidia_smi(host, GPU_QUERY)
    return None if text is None else parse_gpus(text)


async def ask_nvidia_smi(host: Host, query: Sequence[str]) -> str | None:
    """Run nvidia-smi; None where there is none or it fails."""
    try:
        completed = await host.run(
            [*host.settings.nvidia_smi, *query], timeout_s=30.0, repeatable=True
        )
    except HostError:
        return None
    return completed.stdout.decode(errors="replace") if completed.ok else None


def protection_on(host: Host) -> Protection:
    """Who we are on this host, and who is never ended there."""
    pids = frozenset(host.identity.ancestors)
    names = PROTECTED_NAMES | frozenset(host.settings.never_end)
    return Protection(host.identity.uid, pids, names)


async def plan_for(host: Host, policy: Policy | None = None) -> tuple[Plan, Sight]:
    """Look and decide, touching nothing."""
    chosen = allowed_policy(host.name, host.settings, policy)
    sight, left = await asyncio.gather(look_closely(host), host.leftovers())
    plan = plan_cleanup(sight.processes, chosen, protection_on(host))
    return plan, replace(sight, leftovers=left)


async def free(host: Host, plan: Plan, grace_s: float) -> tuple[Kill, ...]:
    """End what the plan names: SIGTERM, after the grace SIGKILL; return who was ended.

    Raises `GpusNotFree` naming whoever outlived SIGKILL.
    """
    if not plan.kills:
        return ()
    outcome = await host.kill([kill.process for kill in plan.kills], grace_s)
    if outcome.left:
        message = f"still there after SIGKILL: {name_them(outcome.left)}; the host needs a person"
        raise GpusNotFree(host.name, message)
    pids = {process.pid for process in outcome.ended}
    return tuple(kill for kill in plan.kills if kill.process.pid in pids)


async def clean(
    host: Host,
    policy: Policy | None = None,
    *,
    grace_s: float = 10.0,
    timeout_s: float = 30.0,
) -> Cleaned:
    """Free the GPUs and wait until they are clean; ends our own leftovers wherever they are.

    Raises `GpusNotFree` when they aren't clean `grace_s + timeout_s` from now, naming who is
    still there: somebody who may not be ended, or who comes back each time.
    """
    started = changed = time.monotonic()
    ended: list[Kill] = []
    plan, sight = await plan_for(host, policy)
    reference, left_before = sight, sight.leftovers
    while left := in_the_way(plan, sight, time.monotonic() - changed):
        if time.monotonic() > started + grace_s + timeout_s:
            waited_s = time.monotonic() - started
            raise GpusNotFree(host.name, await _complaint(host, left, plan, waited_s))
        ended += await free(host, plan, grace_s)
        await asyncio.sleep(0 if plan.kills else POLL_S)
        sight = await look(host)
        plan = plan_cleanup(sight.processes, plan.policy, protection_on(host))
        if moved(reference, sight):
            reference, changed = sight, time.monotonic()
    removed = await host.remove_leftovers() if ended or left_before else ()
    took_s = time.monotonic() - started
    return Cleaned(plan.policy, tuple(ended), took_s, sight.gpus or (), removed)


def in_the_way(plan: Plan, sight: Sight, still_s: float) -> list[str]:
    """What keeps the GPUs from being clean, one line each; `still_s` is how long nothing moved."""
    there = [f"{name_them([kill.process])}: {kill.reason}" for kill in plan.kills]
    there += [f"{name_them([spare.process])}: {spare.reason}" for spare in plan.blockers]
    share = SETTLED_SHARE if not there and still_s >= SETTLED_S else 0.0
    return there + [
        f"GPU {gpu.index} has {gpu.memory_used_mib} MiB taken, idle is {IDLE_MIB}"
        for gpu in sight.gpus or ()
        if gpu.memory_used_mib > max(IDLE_MIB, gpu.memory_total_mib * share)
    ]


def moved(before: Sight, after: Sight) -> bool:
    """Whether processes came or went, or some GPU's memory changed."""
    if {p.pid for p in before.processes} != {p.pid for p in after.processes}:
        return True
    pairs = zip(before.gpus or (), after.gpus or (), strict=False)
    return any(abs(a.memory_used_mib - b.memory_used_mib) > STILL_MIB for a, b in pairs)


async def _complaint(host: Host, left: list[str], plan: Plan, waited_s: float) -> str:
    """Say who is in the way; ask the driver too, it sees processes that /proc hides from us."""
    sight = await look_closely(host)
    hidden = [unseen(app, nested=host.identity.nested_pids) for app in sight.unseen]
    way_out = "end them, or wait for them"
    if plan.policy is not Policy.ALL and plan.blockers:
        may = "policy all" if host.settings.dedicated else "`dedicated = true` in its settings"
        way_out += f"; {may} lets cleaning do it"
    return f"GPUs not free after {waited_s:.0f} s: {'; '.join(left + hidden)} ({way_out})"


def unseen(app: GpuApp, *, nested: bool) -> str:
    """Somebody whom only the driver sees, in words."""
    where = "of outside this container" if nested else "not to be seen here"
    memory = "" if app.memory_mib is None else f" with {app.memory_mib:.0f} MiB"
    return f"the driver names pid {app.pid} ({app.name}){memory}, {where}"
