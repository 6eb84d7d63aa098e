"""A whole sweep: lock the host, validate, measure trial after trial, compare, report."""

import asyncio
import os
import pwd
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from uuid import UUID

from prefect import flow, get_run_logger
from prefect.artifacts import (
    acreate_progress_artifact,
    aupdate_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from rich.markup import escape

from flows.alerts import tell
from flows.api import shown_or_bare, until_api_answers
from flows.course import Course, course
from flows.ends import end_cancelled, end_crashed
from flows.exclusion import turn_on, wait_for
from flows.opening import is_due, open_results, requested
from flows.outcome import data_of, outcome_of
from flows.telling import log_messages
from flows.trial import trial
from flows.truth import say_alive, say_dead
from settings.application import Settings, load
from settings.invalid import InvalidSettings
from settings.nodes import at_same_place, hosts_of
from settings.quantities import show_duration
from settings.sweep import Sweep
from tasks.domain.configuration import Trial, TrialResult, TrialVerdict
from tasks.domain.errors import HostError, HostLocked, InputError, StackUnfit, SweepError
from tasks.domain.facts import Severity, StackReport
from tasks.domain.progress import Progress, report
from tasks.domain.telling import if_possible
from tasks.domain.together import together
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold, hold_all
from tasks.results.alerts import unfit
from tasks.results.conclusion import NEEDS_PERSON, WRONG_INPUT
from tasks.results.folders import SweepFolder
from tasks.results.records import SweepState
from tasks.results.saving import save_unlaunched
from tasks.results.store import note_killed, record_stack, set_flow_run, set_state
from tasks.results.task import Reported, write_report
from tasks.search.grid import rounds
from tasks.server.launch import Patience, end_marked
from tasks.server.site import Site
from tasks.stack.persist import persist
from tasks.stack.task import validate_stacks


def _run_name() -> str:
    """Name a run by sweep, host and date, as far as they are known before it has begun."""
    asked, resume = flow_run.parameters.get("sweep"), flow_run.parameters.get("resume")
    try:
        if isinstance(asked, dict):
            asked = Sweep.model_validate(asked)
        settings, _ = load()
        wanted = requested(asked, resume, Path(settings.store))
        what = f"{wanted.name} {wanted.host}"
    except (InvalidSettings, InputError, ValueError):
        what = Path(asked).stem if isinstance(asked, str) else "sweep"
    return f"{what} {time.strftime('%Y-%m-%d %H:%M', time.gmtime())}"


@flow(
    name="sweep",
    flow_run_name=_run_name,
    on_crashed=[end_crashed],
    on_cancellation=[end_cancelled],
)
async def sweep(sweep: Sweep | str | None = None, resume: str | None = None) -> State[str]:
    """Find the fastest correct server configuration on one host.

    Args:
        sweep: What to try: the sweep itself, or the path of a sweep file on the worker.
        resume: The id of a sweep in the store to go on with; what it has is kept.
    """
    log_messages(get_run_logger())
    try:
        settings, _ = load()
        asked = requested(sweep, resume, Path(settings.store))
        hosts_of(settings, asked)
    except (InvalidSettings, InputError) as error:
        return Failed(name=WRONG_INPUT, message=str(error), data="")
    return await run_on_host(settings, asked, resume)


async def run_on_host(settings: Settings, asked: Sweep, resume: str | None = None) -> State[str]:
    """Run a sweep when its turn on the host has come; the state says how it ended."""
    try:
        async with turn_on(list(hosts_of(settings, asked)), wait_for(settings)):
            state = await _held(settings, asked, resume)
    except HostError as error:
        state = Failed(name=NEEDS_PERSON, message=str(error), data="")
        if not isinstance(error, HostLocked):
            tell(unfit(asked.name, asked.host, str(error)))
    await until_api_answers()
    await say_alive()
    return state


async def _held(settings: Settings, asked: Sweep, resume: str | None) -> State[str]:
    """Take the host, with its peers where servers need several, and run the sweep there."""
    store = Path(settings.store)
    # The run's own id: whoever ends it after a kill can give its lock back.
    token = str(flow_run.id or uuid.uuid4())
    async with AsyncExitStack() as stack:
        hosts = [
            await stack.enter_async_context(connect(name, host))
            for name, host in hosts_of(settings, asked).items()
        ]
        taken = hold_all(hosts, _owner(asked), token, settings.lease, wait_for(settings))
        holds = await stack.enter_async_context(taken)
        for killed in note_killed(store, asked.host, now=time.time()):
            way_on = f"sglang-sweep run --resume {killed.sweep_id} goes on"
            text = f"[yellow]{killed.sweep_id} was killed[/]; {way_on}"
            report(Progress("sweep", message=text))
            await say_dead(killed.flow_run, killed.reason)
        folder, results = open_results(store, asked, resume)
        set_flow_run(folder, token)
        report(Progress("sweep", message=f"sweep [bold]{folder.sweep_id}[/] on {_named(hosts)}"))
        await if_possible(_tag(asked))
        if resume is not None:
            await _end_leftovers(holds, folder, asked)
        return await _recorded(asked, holds, folder, results)


def _named(hosts: Sequence[Host]) -> str:
    return ", ".join(host.name for host in hosts)


async def _end_leftovers(holds: Sequence[Hold], folder: SweepFolder, asked: Sweep) -> None:
    """End what an earlier run of this very sweep had launched; its trial is measured anew."""
    mark, grace_s = f"{folder.sweep_id}/", asked.timeouts.stop_grace
    ended = await together(end_marked(held, mark, grace_s) for held in holds)
    if count := sum(len(each.ended) for each in ended):
        text = f"ended {count} processes left by the run before"
        report(Progress("clean", message=text))


async def _tag(asked: Sweep) -> None:
    """Let the UI filter runs by host and model."""
    if flow_run.id is None:
        return
    model = asked.server.model_path.rstrip("/").rpartition("/")[2]
    tags = {*flow_run.tags, f"host:{asked.host}", f"model:{model}"}
    async with get_client() as client:
        await client.update_flow_run(UUID(flow_run.id), tags=sorted(tags))


def _owner(asked: Sweep) -> str:
    """Who holds the host's lock, as the next one in line reads it."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return f"sweep {asked.name} of {user}@{socket.gethostname()} (pid {os.getpid()})"


async def _recorded(
    asked: Sweep, holds: Sequence[Hold], folder: SweepFolder, results: dict[str, TrialResult]
) -> State[str]:
    """Run the sweep; however it ends, the store says how."""
    try:
        await _measured(asked, holds, folder, results)
    except asyncio.CancelledError:
        set_state(folder, SweepState.CANCELLED, now=time.time(), reason="interrupted")
        raise
    except SweepError as error:
        set_state(folder, SweepState.FAILED, now=time.time(), reason=str(error))
        tell(unfit(asked.name, asked.host, str(error)))
        return Failed(name=NEEDS_PERSON, message=str(error), data=folder.sweep_id)
    except Exception as error:
        set_state(folder, SweepState.CRASHED, now=time.time(), reason=repr(error))
        raise
    report(Progress("report"))
    reported = await write_report(folder)
    for alert in reported.alerts:
        tell(alert)
    return _as_state(reported, folder.sweep_id)


async def _measured(
    asked: Sweep, holds: Sequence[Hold], folder: SweepFolder, results: dict[str, TrialResult]
) -> None:
    """Validate and measure; trials that were not reached are in the store too."""
    try:
        stacks = await _fit_stacks([held.host for held in holds], asked, folder)
        if asked.persist == "sitecustomize":
            await _persisted([held.host for held in holds], asked, stacks)
        times = asked.timeouts
        patience = Patience(times.ready, times.stall, times.stop_grace)
        planned = len(results) * asked.search.repeats
        site = Site(holds[0], stacks, patience, tuple(holds[1:]))
        course.set(Course(asked, site, folder, results, planned))
        await _rounds(course.get())
    finally:
        save_unlaunched(folder, (r for r in results.values() if not r.attempts))


async def _rounds(now: Course) -> None:
    """Measure round after round, until all is measured or the host needs a person."""
    bar = await if_possible(
        acreate_progress_artifact(progress=0.0, key="sweep-progress", description=_stand(now))
    )
    trials = [result.trial for result in now.results.values()]
    for number, (repeat, each) in enumerate(rounds(trials, now.sweep.search.repeats)):
        now.done = number
        if lost := next((held for held in now.site.holds if held.lost.is_set()), None):
            raise HostLocked(lost.host.name, "the lock was lost: somebody took the host over")
        if now.out_of_budget():
            return
        if is_due(now.results[each.trial_id], repeat):
            started = time.monotonic()
            verdict = await _trial(now, each, repeat)
            now.measured_s.append(time.monotonic() - started)
            if verdict == TrialVerdict.STOPPED:
                return
        now.done = number + 1
        await say_alive()
        if bar is not None:
            share = 100.0 * now.done / now.rounds
            told = aupdate_progress_artifact(bar, progress=share, description=_stand(now))
            await if_possible(told)


def _stand(now: Course) -> str:
    """How far a sweep is, and how long it should take yet."""
    left = f", about {show_duration(now.eta_s)} left" if now.eta_s else ""
    return f"{now.sweep.name} on {now.site.host.name}: {now.done} of {now.rounds} done{left}"


async def _trial(now: Course, each: Trial, repeat: int) -> str:
    """Measure one trial, as a flow run of its own where Prefect's API answers."""

    def known() -> str | None:
        result = now.results[each.trial_id]
        return None if is_due(result, repeat) else str(result.verdict)

    async def shown() -> str:
        return await outcome_of(trial(each.label, each.trial_id, repeat, return_state=True), str)

    async def bare() -> str:
        return await data_of(await trial.fn(each.label, each.trial_id, repeat), str)

    return await shown_or_bare(shown, bare, known)


async def _fit_stacks(
    hosts: Sequence[Host], asked: Sweep, folder: SweepFolder
) -> tuple[StackReport, ...]:
    """Validate the hosts' stacks and keep those that can serve.

    Raises `StackUnfit` with the first error where there is none.
    """
    report(Progress("validate", detail="loading torch, sgl_kernel, flashinfer …"))
    reports = await validate_stacks(hosts, asked)
    for each in reports:
        record_stack(folder, each, now=time.time())
        for finding in each.findings:
            if finding.severity is not Severity.INFO:
                text = f"[yellow]{finding.severity}[/] {escape(f'{each.stack}: {finding.summary}')}"
                report(Progress("validate", message=text))
    fit = tuple(each for each in reports if each.fit)
    if not fit:
        faults = [f for each in reports for f in each.findings if f.severity is Severity.ERROR]
        why = f"{faults[0].summary}; {faults[0].fix}" if faults else "it lists no stack"
        raise StackUnfit(hosts[0].name, f"no stack can serve, nothing was launched: {why}")
    return fit


async def _persisted(hosts: Sequence[Host], asked: Sweep, stacks: tuple[StackReport, ...]) -> None:
    """Write the sweep's environment into the stacks that it will use."""
    for host, each in product(hosts, stacks):
        stack = at_same_place(each.stack, hosts[0].settings, host.settings)
        persisted = await persist(host, stack, asked.server.env)
        if persisted.done == "written":
            where = f"{persisted.path} ({len(asked.server.env)} variables)"
            report(Progress("validate", message=f"environment written into {escape(where)}"))


def _as_state(reported: Reported, sweep_id: str) -> State[str]:
    """The flow's final state: its name and message say how the sweep ended, and what is best."""
    conclusion = reported.conclusion
    make = Completed if conclusion.good else Failed
    told = (reported.decision, conclusion.message)
    message = "; ".join(told) if conclusion.good else conclusion.message
    return make(name=conclusion.name, message=message, data=sweep_id)
