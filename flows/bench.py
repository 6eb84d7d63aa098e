"""Load a server that runs already, as a deployment: `sglang-sweep bench` with a form."""

from dataclasses import replace

from prefect import flow, get_run_logger
from prefect.artifacts import acreate_table_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.outcome import Drawn, outcome_of
from flows.telling import load_teller, log_messages
from settings.application import load
from settings.invalid import InvalidSettings
from settings.metric_names import LARGEST
from settings.workload import Workload
from tasks.domain.errors import InputError
from tasks.domain.measurement import LevelResult, SearchRole, Validity
from tasks.domain.progress import Progress, report
from tasks.domain.sglang import BENCH_ENGINES
from tasks.domain.telling import if_possible
from tasks.load.bench_serving import Foreign, ForeignClientFailed, run_here
from tasks.load.largest import answers, following, role_of
from tasks.load.target import Backend, Level, Target
from tasks.load.task import drive_foreign, drive_load
from tasks.load.workers import CaptureFailed, capture
from tasks.results.conclusion import INVALID, NOTHING_FEASIBLE, REQUESTS_FAILED, WRONG_INPUT

_STALL_S = 300.0
"""A server that says nothing for so long while requests are in flight hangs."""

_SHOWN = (
    "output_throughput",
    "request_throughput",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p99_itl_ms",
    "failed",
)


@flow(name="bench", flow_run_name="bench {url}")
async def bench(
    url: str,
    workload: Workload,
    backend: Backend = "sglang",
    model: str = "default",
    seed: int = 1,
    python: str = "python3",
) -> State[list[LevelResult]]:
    """Load a server that runs already, from the worker, and judge what was measured.

    Args:
        url: The server's base URL as the worker reaches it, http://host:port or https://host.
        workload: How it is loaded: dataset, lengths, and levels of concurrency or request rate.
        backend: Its interface: /generate, /v1/completions or /v1/chat/completions.
        model: The model's name, for the OpenAI interfaces.
        seed: Of prompts and arrival times; the same seed sends the same requests.
        python: Where the workload's engine is SGLang's own client: the worker's interpreter that
            has SGLang.
    """
    log_messages(get_run_logger())
    try:
        settings, _ = load()
        key = settings.api_key.get_secret_value() if settings.api_key else None
        target = Target(url, backend, model, api_key=key)
    except (InvalidSettings, InputError) as error:
        return Failed(name=WRONG_INPUT, message=str(error), data=[])
    try:
        results = await _driven(target, workload, seed, python)
    except (CaptureFailed, ForeignClientFailed, InputError) as error:
        return Failed(message=str(error), data=[])
    told = acreate_table_artifact(
        key="bench",
        table=[_row(result) for result in results],
        description=f"{workload.name} {url}",
    )
    await if_possible(told)
    return _as_state(results)


async def _driven(target: Target, workload: Workload, seed: int, python: str) -> list[LevelResult]:
    """Drive level after level, each a task of its own; after a search its answer as well."""
    runs: list[LevelResult] = []
    drawn = Drawn()
    while (level := following(workload, runs)) is not None:
        run = _run(target, workload, level, seed, python, drawn)
        runs.append(replace(await outcome_of(run, LevelResult, drawn), search=role_of(workload)))
        report(Progress("load", message=_told(runs[-1])))
    return [*runs, *answers([workload], runs)]


def _run(
    target: Target, workload: Workload, level: Level, seed: int, python: str, drawn: Drawn
) -> object:
    """Start the task that drives a level, by our own client or SGLang's; its state is to come."""
    if workload.engine != "native":
        return drive_foreign(
            target.base_url,
            target,
            workload,
            level,
            0,
            seed,
            Foreign(python, BENCH_ENGINES[workload.engine]),
            run_here,
            return_state=True,
            wait_for=drawn,
        )
    return drive_load(
        target.base_url,
        target,
        workload,
        level,
        0,
        seed,
        load_teller(Progress(f"load {level}")),
        None,  # whether the server's process lives nobody here can know
        _STALL_S,
        capture,
        return_state=True,
        wait_for=drawn,
    )


def _told(result: LevelResult) -> str:
    """A level in a line."""
    reasons = f" ({'; '.join(result.verdict.reasons)})" if result.verdict.reasons else ""
    speed = result.metrics.get("output_throughput", 0.0)
    return f"{_level(result)}: {speed:,.1f} output tok/s, {result.verdict.validity}{reasons}"


def _level(result: LevelResult) -> str:
    """The level's name; of a search's answer what was found."""
    found = [name for name in LARGEST.values() if name in result.metrics]
    if result.search is not SearchRole.FOUND or not found:
        return result.level
    return f"{found[0]} within the SLO {result.metrics[found[0]]:g}"


def _row(result: LevelResult) -> dict[str, object]:
    metrics = {name: round(result.metrics.get(name, 0.0), 3) for name in _SHOWN}
    verdict = {"verdict": str(result.verdict.validity), "why": "; ".join(result.verdict.reasons)}
    role = {"search": str(result.search)} if result.search is not SearchRole.NONE else {}
    return {"level": result.level, **role, **metrics, **verdict}


def _as_state(results: list[LevelResult]) -> State[list[LevelResult]]:
    """Failed where requests failed, or where nothing that was measured can be believed.

    Of a search only the answer counts: some of its steps overload the server on purpose.
    """
    decisive = [result for result in results if result.search is not SearchRole.STEP]
    message = "; ".join(map(_told, decisive or results))
    if not decisive:
        text = f"not even the least level keeps the SLO; {message}"
        return Failed(name=NOTHING_FEASIBLE, message=text, data=results)
    failed = sum(result.metrics.get("failed", 0) for result in decisive)
    if failed:
        text = f"{failed:,.0f} requests failed; {message}"
        return Failed(name=REQUESTS_FAILED, message=text, data=results)
    if any(result.verdict.validity is Validity.INVALID for result in decisive):
        return Failed(name=INVALID, message=message, data=results)
    return Completed(message=message, data=results)
