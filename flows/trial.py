"""One configuration on one launch: clean, launch (diagnose, remedy, retry), measure, store."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from rich.markup import escape

from flows.course import Course, course
from flows.deciding import Decision, follows, moves
from flows.measure import Served, measure
from flows.outcome import Drawn, outcome_of, to_the_end
from tasks.domain.configuration import Attempt, TrialResult, TrialVerdict
from tasks.domain.diagnosis import Doctor, Remedy
from tasks.domain.errors import LeaseExpired, SweepError
from tasks.domain.progress import Progress, report
from tasks.domain.sglang import NODE_ADDRESS
from tasks.domain.together import together
from tasks.failures.diagnosis import diagnosis_of
from tasks.failures.fatal import fatal_line
from tasks.failures.nodes import blame
from tasks.failures.remedies import NextStep, Prune, Retry, Stop, apply, spread
from tasks.gpus.clean import Cleaned
from tasks.gpus.plan import name_them
from tasks.gpus.task import clean_gpus
from tasks.load.bench_serving import ForeignClientFailed
from tasks.load.workers import CaptureFailed
from tasks.results.good_launches import good_launch, keep_good_launch
from tasks.results.judgement import unmeasured
from tasks.results.launch_files import save_launch
from tasks.results.remembered import remember, remembered
from tasks.results.saving import save_unlaunched
from tasks.results.task import store_trial
from tasks.server.cure import tidy, unmet
from tasks.server.death import serving
from tasks.server.launch import end_launch, log_at, mark_of
from tasks.server.order import Launched, LaunchOrder
from tasks.server.task import launch_server

_MEETING = f"--{NODE_ADDRESS.replace('_', '-')}"
DOCTOR = Doctor(blame, fatal_line, diagnosis_of)


@flow(name="trial", flow_run_name="{label} repeat={repeat}")
async def trial(label: str, trial_id: str, repeat: int) -> State[str]:
    """Measure one configuration on one launch, after as many attempts as it takes.

    Args:
        label: The trial's axes, as a person reads them.
        trial_id: The hash of the resolved configuration.
        repeat: Which of the sweep's rounds this is, from 1.
    """
    now = course.get()
    try:
        result = await _measured(now, now.results[trial_id], repeat)
    except (CaptureFailed, ForeignClientFailed, LeaseExpired) as error:
        result = unmeasured(now.results[trial_id], TrialVerdict.FAILED, str(error))
    except BaseException as error:
        _keep(now, trial_id, error)
        raise
    now.results[trial_id] = await store_trial(now.store, result)
    report(Progress("trial", message=_outcome(now.results[trial_id])))
    return _as_state(result)


def _as_state(result: TrialResult) -> State[str]:
    """The state by which a list of trials tells what became of each; its data is the verdict."""
    verdict = result.verdict
    name = verdict.capitalize()
    last = result.attempts[-1].diagnosis if result.attempts else None
    if verdict in (TrialVerdict.MEASURED, TrialVerdict.SUSPECT):
        return Completed(name=name, message=_speeds(result) or None, data=str(verdict))
    cause = f": {last.mode}" if last is not None else ""
    return Failed(name=f"{name}{cause}", message=result.reason or None, data=str(verdict))


def _keep(now: Course, trial_id: str, error: BaseException) -> None:
    """Store the attempts of a trial that was broken off, without a task: the API may be gone."""
    partial = now.results[trial_id]
    if isinstance(error, SweepError):
        partial = unmeasured(partial, TrialVerdict.FAILED, str(error))
    now.store.save(partial)


async def _measured(now: Course, result: TrialResult, repeat: int) -> TrialResult:
    """Attempt until a server was measured, or there is nothing left to try."""
    remedies: tuple[Remedy, ...] = await _remembered(now, result, repeat, ())
    cures: dict[str, Remedy] = {}
    made = 0
    while True:
        order = _order(now, result, repeat, remedies)
        if order is None:
            return unmeasured(result, TrialVerdict.PRUNED, "its software stack is not fit to serve")
        made += 1
        decision = Decision(now, order, made)
        result = await _attempted(now, result, decision)
        diagnosis = result.attempts[-1].diagnosis
        if diagnosis is None:
            _keep_what_worked(now, order, result.attempts[-1], cures)
            return result
        step = await decision.after(diagnosis)
        _announce(order, diagnosis.mode, diagnosis.explanation, step)
        match step:
            case Retry(remedies) if remedies[-1].another_stack:
                cures, remedies = {}, await _remembered(now, result, repeat, remedies)
            case Retry(remedies):
                cures |= {diagnosis.mode: remedies[-1]}
                await asyncio.sleep(remedies[-1].wait_s)
            case Prune(reason):
                _spread(now, result)
                return unmeasured(result, TrialVerdict.PRUNED, reason)
            case Stop(reason):
                return unmeasured(result, TrialVerdict.STOPPED, reason)


async def _remembered(
    now: Course, result: TrialResult, repeat: int, switches: tuple[Remedy, ...]
) -> tuple[Remedy, ...]:
    """The changes of stack, and what is known to cure the stack that they lead to.

    What a remedy requires may be gone since it worked.
    """
    order = _order(now, result, repeat, switches)
    if order is None:
        return switches
    known = remembered(now.folder.store, now.site.host.name, order.stack.fingerprint).values()
    return (*switches, *[one for one in known if not await unmet(now.site, one, order)])


def _keep_what_worked(
    now: Course, order: LaunchOrder, attempt: Attempt, cures: dict[str, Remedy]
) -> None:
    """Remember the cures for this stack, and the launch for the model's next one."""
    store, host = now.folder.store, now.site.host.name
    remember(store, host, order.stack.fingerprint, cures)
    keep_good_launch(store, host, order.configuration.model_path, attempt)


def _order(
    now: Course, result: TrialResult, repeat: int, remedies: tuple[Remedy, ...]
) -> LaunchOrder | None:
    """The next launch of a trial; None where no fit stack is left for it."""
    asked = result.trial.configuration
    stack = now.site.stack_for(asked, moves(remedies))
    if stack is None:
        return None
    number = len(result.attempts) + 1
    good = good_launch(now.folder.store, now.site.host.name, asked.model_path)
    return LaunchOrder(
        configuration=apply(asked, remedies),
        stack=stack,
        remedies=remedies,
        number=number,
        repeat=repeat,
        trial_id=result.trial.trial_id,
        mark=f"{now.folder.sweep_id}/{result.trial.trial_id}/{number}/",
        what=now.what(result.trial, "launch", number),
        avoid_ports=tuple(_lost_ports(result)),
        ready_factor=max((remedy.longer_timeout for remedy in remedies), default=1.0),
        expected_s=good.expected_s if good else None,
    )


def _lost_ports(result: TrialResult) -> Iterator[int]:
    """The ports that this trial's launches could not have."""
    for attempt in result.attempts:
        remedy = attempt.diagnosis.remedy if attempt.diagnosis else None
        if remedy and remedy.another_port:
            commands = [attempt.command, *(peer.command for peer in attempt.peers)]
            yield from (int(command[command.index("--port") + 1]) for command in commands)
            if _MEETING in attempt.command:
                meeting = attempt.command[attempt.command.index(_MEETING) + 1]
                yield int(meeting.rpartition(":")[2])


async def _attempted(now: Course, result: TrialResult, decision: Decision) -> TrialResult:
    """Make one attempt and take in what came of it; the server is gone afterwards in any case."""
    order, drawn = decision.order, Drawn()
    cleaned = await _cleaned(now, order, drawn)
    try:
        run = launch_server(
            order, now.site, DOCTOR, decision.page, return_state=True, wait_for=drawn
        )
        launched = await outcome_of(run, Launched, drawn)
        attempt = replace(
            launched.attempt,
            ended=tuple(kill.record() for each in cleaned for kill in each.ended),
            removed=tuple(str(one) for each in cleaned for one in each.removed),
        )
        result = replace(result, attempts=(*result.attempts, attempt))
        if launched.attempt.diagnosis is None:
            served = Served(now, order, await serving(launched.launch), decision.page, drawn)
            result = await measure(served, result)
    finally:
        now.results[result.trial.trial_id] = result
        with now.busy("stop"):
            await to_the_end(_ended(now, order))
        result = now.results[result.trial.trial_id] = now.noted(result, order.number)
    return result


def _ended_before(cleaned: Cleaned) -> str:
    """Whom a cleaning ended, in a line."""
    named = name_them([kill.process for kill in cleaned.ended])
    return f"[yellow]![/] ended to free the GPUs: {escape(named)}"


async def _cleaned(now: Course, order: LaunchOrder, drawn: Drawn) -> list[Cleaned]:
    """Free the GPUs of every host that the server needs.

    What dead servers left is taken away too, where a remedy asks for it.
    """
    report(replace(order.what, phase="clean"))
    hosts = [hold.host for hold in now.site.holds_for(order.configuration)]
    grace_s = now.sweep.timeouts.stop_grace
    now.spells.clear()
    with now.busy("clean"):
        each = await together(
            outcome_of(clean_gpus(host, grace_s, return_state=True), Cleaned, drawn)
            for host in hosts
        )
    for cleaned in each:
        if cleaned.ended:
            report(replace(order.what, phase="clean", message=_ended_before(cleaned)))
    for path in await tidy(now.site, order):
        report(Progress("clean", message=f"took away what a dead server left: {escape(path)}"))
    return each


async def _ended(now: Course, order: LaunchOrder) -> None:
    """End the server and keep its log; neither a failure nor a cancellation may skip this."""
    report(replace(order.what, phase="stop"))
    holds = now.site.holds_for(order.configuration)
    await end_launch(holds, order.mark, now.site.patience.grace_s)
    for rank, hold in enumerate(holds):
        folder = hold.host.launch_folder(mark_of(order.mark, rank))
        files = {
            "server.log": await log_at(hold.host, folder),
            "cmd.sh": await hold.host.read(f"{folder}/cmd.sh"),
        }
        save_launch(now.folder, order.trial_id, order.number, files, node=rank)


def _announce(order: LaunchOrder, mode: str, explanation: str, step: NextStep) -> None:
    """Say in two lines why an attempt failed and what follows."""
    then = escape(follows(step))
    where = f"[cyan]{escape(order.label)}[/] attempt {order.number}"
    text = f"[yellow]✗[/] {where} [yellow]{mode}[/]: {escape(explanation)} [bold]→ {then}[/]"
    report(Progress("launch", message=text))


def _spread(now: Course, failed: TrialResult) -> None:
    """Give up the trials that can't do better than the one that failed, unlaunched."""
    diagnosis = failed.attempts[-1].diagnosis
    pending = [r.trial for r in now.results.values() if r.verdict is TrialVerdict.PENDING]
    others = [trial for trial in pending if trial.trial_id != failed.trial.trial_id]
    if diagnosis is None:
        return
    spared = spread(diagnosis, failed.trial, others)
    for trial_id, reason in spared.items():
        now.results[trial_id] = unmeasured(now.results[trial_id], TrialVerdict.PRUNED, reason)
    save_unlaunched(now.folder, (now.results[trial_id] for trial_id in spared))


def _outcome(result: TrialResult) -> str:
    """The line that stays when a trial is over."""
    sign = {TrialVerdict.MEASURED: "[green]✓[/]", TrialVerdict.SUSPECT: "[yellow]?[/]"}
    why = escape(f" — {result.reason}") if result.reason else ""
    mark = sign.get(result.verdict, "[red]✗[/]")
    told = (mark, f"[cyan]{escape(result.trial.label)}[/]", result.verdict, _speeds(result))
    return " ".join(filter(None, told)) + why


def _speeds(result: TrialResult) -> str:
    """What the last repeat measured, level by level."""
    return ", ".join(
        f"{level.workload} {level.level} {level.metrics['output_throughput']:,.1f} tok/s"
        for level in result.levels
        if level.repeat == result.repeats_done and "output_throughput" in level.metrics
    )
