"""What is done with a server that serves: canary, then every level of every workload."""

import zlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from rich.markup import escape

from flows.course import Course
from flows.outcome import Drawn, outcome_of
from flows.telling import load_teller
from flows.unbroken import unbroken
from settings.sweep import Canary
from settings.workload import Workload
from tasks.domain.configuration import Attempt, TrialResult, TrialVerdict
from tasks.domain.diagnosis import NodeEnd, Phase
from tasks.domain.measurement import LevelResult
from tasks.domain.page import Page
from tasks.domain.progress import report
from tasks.domain.sglang import BENCH_ENGINES
from tasks.failures.nodes import blame
from tasks.gpus.sample import numbered_through, sampling
from tasks.gpus.usage import with_gpus
from tasks.hosts.host import Host
from tasks.load.bench_serving import Foreign
from tasks.load.foreign_on_host import OnHost
from tasks.load.largest import answers, following, foreseen, role_of
from tasks.load.on_host import HostCapture
from tasks.load.server import read_vocab_size
from tasks.load.target import Level, Target
from tasks.load.task import drive_foreign, drive_load
from tasks.load.workers import Capture, capture
from tasks.results.judgement import judged
from tasks.results.saving import save_gpu
from tasks.server.attempt import LOG_TAIL, placed, undiagnosed
from tasks.server.canary import CanaryReport
from tasks.server.death import Serving
from tasks.server.launch import Launch
from tasks.server.order import LaunchOrder
from tasks.server.task import check_answers, tell_death


@dataclass(frozen=True, slots=True)
class Served:
    """A server that came up, and how its death would be told."""

    now: Course
    order: LaunchOrder
    serving: Serving
    page: Page
    drawn: Drawn

    @property
    def launch(self) -> Launch:
        """What was started."""
        return self.serving.launch


async def measure(served: Served, result: TrialResult) -> TrialResult:
    """Check and load a server; the result says what came of it.

    A server that dies under load, or after it, gives its attempt a diagnosis, as a launch that
    failed has. The canary asks before any load and again after the heaviest.
    """
    now, order = served.now, served.order
    remedies = tuple(remedy for remedy in order.remedies if remedy.changes_server)
    result = replace(result, fingerprint=order.stack.fingerprint, remedies=remedies)
    # The requests' times are on the clock of the machine that sends them.
    clock = None if _place(now) == "worker" else now.site.host
    # Begun before the canary: while a level is measured no process of ours starts there.
    async with AsyncExitStack() as stack:
        each = [
            await stack.enter_async_context(sampling(node.hold, f"{node.mark}gpu/", clock=clock))
            for node in served.launch.nodes
        ]
        driven = await _driven(served, result)
    samples = numbered_through(each)
    save_gpu(now.folder, order.trial_id, order.number, samples)
    if isinstance(driven, TrialResult):
        return driven
    result, measured = driven
    kept = [level for level in result.levels if level.repeat != order.repeat]
    seen = [with_gpus(level, samples) for level in measured]
    levels = (*kept, *seen, *answers(now.sweep.workloads, seen))
    return judged(replace(result, levels=levels, repeats_done=order.repeat))


async def _refused(
    served: Served, result: TrialResult, found: CanaryReport, when: str = ""
) -> TrialResult:
    """Give up a server that answers wrongly, or explain its death if that is why."""
    if (died := await _death(served, result)) is not None:
        return died
    return replace(result, verdict=TrialVerdict.INCORRECT, reason=f"{when}{found.fault}")


async def _driven(
    served: Served, result: TrialResult
) -> TrialResult | tuple[TrialResult, list[LevelResult]]:
    """The result with the canary's answers, and the levels; or what became of the trial instead."""
    canary = served.now.sweep.canary
    if canary.enabled:
        found = await _asked(served, result, canary)
        if not found.ok:
            return await _refused(served, result, found)
        result = replace(result, answers=found.answers)
    levels = await _levels(served, result)
    return levels if isinstance(levels, TrialResult) else (result, levels)


async def _levels(served: Served, result: TrialResult) -> TrialResult | list[LevelResult]:
    """Drive every level of every workload, the heaviest with a canary after it.

    What became of the trial if the server dies of it, or answers wrongly after it.
    """
    now, patient = served.now, True
    levels: list[LevelResult] = []
    everything = [(each, level) for each in now.sweep.workloads for level in foreseen(each)]
    heaviest = max(everything, key=lambda one: _weight(*one))
    for workload in now.sweep.workloads:
        runs: list[LevelResult] = []
        while (level := following(workload, runs)) is not None:
            with now.busy("load"):
                runs.append(await _loaded(served, workload, level))
                if runs[-1].verdict.disturbed and patient:
                    runs[-1] = await _loaded_again(served, workload, level, runs[-1])
                    patient = not runs[-1].verdict.disturbed
            if (ended := await _death(served, result)) is not None:
                return ended
            if (reason := _hang(runs[-1])) is not None:
                return await _stuck(served, result, reason)
            if now.sweep.canary.enabled and (workload, level) == heaviest:
                found = await _asked(served, result, now.sweep.canary)
                if not found.ok:
                    return await _refused(served, result, found, f"after {workload.name} {level}: ")
        levels += runs
    return levels


def _weight(workload: Workload, level: Level) -> float:
    """How heavy a level is: tokens in flight, or asked for per second."""
    tokens = workload.input_len + workload.output_len
    return tokens * (level.concurrency or level.request_rate or 0)


async def _asked(served: Served, result: TrialResult, canary: Canary) -> CanaryReport:
    """Put the canary's prompts to the server."""
    now, order, launch = served.now, served.order, served.launch
    report(replace(order.what, phase="canary"))
    reference = None if result.trial.baseline else now.reference

    async def ask() -> CanaryReport:
        run = check_answers(
            order.label,
            launch.base_url,
            canary,
            reference,
            return_state=True,
            wait_for=served.drawn,
        )
        return await outcome_of(run, CanaryReport, served.drawn)

    with now.busy("canary"):
        return await unbroken(now.site.host, ask)


async def _loaded_again(
    served: Served, workload: Workload, level: Level, before: LevelResult
) -> LevelResult:
    """Drive a level once more whose client was disturbed: far cheaper than a launch in vain.

    What it measured doesn't enter into it: whether a run counts depends on the client alone. Other
    prompts are sent, since the server has those of the first run in its cache.
    """
    why = "; ".join(before.verdict.reasons)
    what = f"{workload.name} {level}"
    told = escape(f"{what} once more: {why}")
    report(replace(served.order.what, phase=f"load {what}", message=told))
    again = await _loaded(served, workload, level, "/again")
    return replace(again, client={**again.client, "again_since": why})


async def _loaded(served: Served, workload: Workload, level: Level, salt: str = "") -> LevelResult:
    """Drive one level; the seed is the level's, so that every trial does the same work.

    A level that went through a tunnel which broke is driven again, and only then counts.
    """
    now, order, launch = served.now, served.order, served.launch
    seed = zlib.crc32(f"{workload.name}/{level}/{order.repeat}{salt}".encode())
    what = replace(order.what, phase=f"load {workload.name} {level}")
    report(what)
    host, place = now.site.host, _place(now)
    size = await _vocabulary(host, order.configuration.model_path)

    async def drive() -> LevelResult:
        run = drive_load(
            order.label,
            Target(launch.base_url, vocab_size=size),
            workload,
            level,
            order.repeat,
            seed,
            load_teller(what),
            served.serving.lives_on,
            now.site.patience.stall_s,
            capture if place == "worker" else _beside(now, launch),
            return_state=True,
            wait_for=served.drawn,
        )
        return await outcome_of(run, LevelResult, served.drawn)

    if workload.engine != "native":
        return await _cross_checked(served, workload, level, seed)
    if place == "host":
        run = _placed(await drive(), place, "loopback")
    else:
        run = _placed(await unbroken(host, drive), place, host.transport.path)
    return replace(run, search=role_of(workload))


async def _cross_checked(
    served: Served, workload: Workload, level: Level, seed: int
) -> LevelResult:
    """Have the client of the server's own software stack drive a level, beside the server."""
    now, order, launch = served.now, served.order, served.launch
    foreign = Foreign(
        python=now.site.host.expand(order.stack.stack),
        module=BENCH_ENGINES[workload.engine],
        base_url=f"http://127.0.0.1:{launch.port}",
        model_path=order.configuration.model_path,
    )
    found = await drive_foreign(
        order.label,
        Target(launch.base_url),
        workload,
        level,
        order.repeat,
        seed,
        foreign,
        OnHost(now.site.hold, f"{launch.mark}load/"),
    )
    return _placed(found, "host", "loopback")


def _place(now: Course) -> str:
    """Where the load runs: beside the server, if a tunnel would be part of every time."""
    if now.sweep.load.place != "auto":
        return now.sweep.load.place
    return "host" if now.site.host.transport.path == "tunnel" else "worker"


def _beside(now: Course, launch: Launch) -> Capture:
    """Send the requests by processes of the host."""
    return HostCapture(now.site.hold, f"{launch.mark}load/", launch.port)


async def _vocabulary(host: Host, model_path: str) -> int | None:
    """The model's vocabulary, where its folder is on the host; None for a name on the hub."""
    if not model_path.startswith(("/", "~")):
        return None
    return read_vocab_size(await host.read(f"{model_path}/config.json"))


def _placed(driven: LevelResult, place: str, path: str) -> LevelResult:
    """Say where the load ran, and how it reached the server."""
    return replace(driven, client={**driven.client, "load_from": place, "load_path": path})


def _hang(level: LevelResult) -> str | None:
    """Why a level says that its server hangs, None where it doesn't."""
    return next((r for r in level.verdict.reasons if r.startswith("server hung")), None)


async def _stuck(served: Served, result: TrialResult, reason: str) -> TrialResult:
    """Explain a server that lives but says nothing any more: it is not waited on level by level."""
    return await _told(served, result, await served.serving.standstill(), reason)


async def _death(served: Served, result: TrialResult) -> TrialResult | None:
    """Explain a server that served and then was gone; None while it lives, and all its workers."""
    ends = await served.serving.ends(served.now.site.patience.certain_s)
    if ends is None:
        return None
    codes = ", ".join(str(end.exit_code) for end in ends if end.exit_code is not None)
    ended = f"ended under load with exit status {codes}" if codes else "lost a worker under load"
    return await _told(served, result, ends, f"the server {ended}")


async def _told(
    served: Served, result: TrialResult, ends: Sequence[NodeEnd], reason: str
) -> TrialResult:
    """Put the death of a server that had served into its attempt, and before a person."""
    rank, diagnosis = blame(ends)
    diagnosis = diagnosis or undiagnosed(Phase.SERVING, reason)
    where = "all nodes" if ends[rank].stalled and len(ends) > 1 else served.launch.where(rank)
    *before, last = result.attempts
    died: Attempt = replace(
        last, exit_code=ends[rank].exit_code, diagnosis=placed(diagnosis, rank, where)
    )
    log = ends[rank].log[-LOG_TAIL:]
    run = tell_death(served.order, died, log, served.page, return_state=True)
    await outcome_of(run, str)
    return replace(result, attempts=(*before, died))
