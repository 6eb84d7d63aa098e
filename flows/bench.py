"""Load a server that runs already, as a deployment: `sglang-sweep bench` with a form."""

from prefect import flow, get_run_logger
from prefect.artifacts import acreate_table_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.outcome import Drawn, outcome_of
from flows.telling import load_teller, log_messages
from settings.application import load
from settings.invalid import InvalidSettings
from settings.workload import Workload
from tasks.domain.errors import InputError
from tasks.domain.measurement import LevelResult, Validity
from tasks.domain.progress import Progress, report
from tasks.domain.telling import if_possible
from tasks.load.target import Backend, Target, levels_of
from tasks.load.task import drive_load
from tasks.load.workers import CaptureFailed, capture
from tasks.results.conclusion import INVALID, REQUESTS_FAILED, WRONG_INPUT

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
) -> State[list[LevelResult]]:
    """Load a server that runs already, from the worker, and judge what was measured.

    Args:
        url: The server's base URL as the worker reaches it, http://host:port or https://host.
        workload: How it is loaded: dataset, lengths, and levels of concurrency or request rate.
        backend: Its interface: /generate, /v1/completions or /v1/chat/completions.
        model: The model's name, for the OpenAI interfaces.
        seed: Of prompts and arrival times; the same seed sends the same requests.
    """
    log_messages(get_run_logger())
    try:
        settings, _ = load()
        key = settings.api_key.get_secret_value() if settings.api_key else None
        target = Target(url, backend, model, api_key=key)
    except (InvalidSettings, InputError) as error:
        return Failed(name=WRONG_INPUT, message=str(error), data=[])
    try:
        results = await _driven(target, workload, seed)
    except (CaptureFailed, InputError) as error:
        return Failed(message=str(error), data=[])
    told = acreate_table_artifact(
        key="bench",
        table=[_row(result) for result in results],
        description=f"{workload.name} {url}",
    )
    await if_possible(told)
    return _as_state(results)


async def _driven(target: Target, workload: Workload, seed: int) -> list[LevelResult]:
    """Drive level after level, each a task of its own."""
    results, drawn = [], Drawn()
    for level in levels_of(workload):
        run = drive_load(
            target.base_url,
            target,
            workload,
            level,
            0,
            seed,
            load_teller(Progress(f"load {level}")),
            _unknown,
            _STALL_S,
            capture,
            return_state=True,
            wait_for=drawn,
        )
        results.append(await outcome_of(run, LevelResult, drawn))
        report(Progress("load", message=_told(results[-1])))
    return results


async def _unknown() -> bool:
    """Whether the server's process lives: nobody here can know."""
    return True


def _told(result: LevelResult) -> str:
    """A level in a line."""
    reasons = f" ({'; '.join(result.verdict.reasons)})" if result.verdict.reasons else ""
    speed = result.metrics.get("output_throughput", 0.0)
    return f"{result.level}: {speed:,.1f} output tok/s, {result.verdict.validity}{reasons}"


def _row(result: LevelResult) -> dict[str, object]:
    metrics = {name: round(result.metrics.get(name, 0.0), 3) for name in _SHOWN}
    verdict = {"verdict": str(result.verdict.validity), "why": "; ".join(result.verdict.reasons)}
    return {"level": result.level, **metrics, **verdict}


def _as_state(results: list[LevelResult]) -> State[list[LevelResult]]:
    """Failed where requests failed, or where nothing that was measured can be believed."""
    message = "; ".join(map(_told, results))
    failed = sum(result.metrics.get("failed", 0) for result in results)
    if failed:
        text = f"{failed:,.0f} requests failed; {message}"
        return Failed(name=REQUESTS_FAILED, message=text, data=results)
    if any(result.verdict.validity is Validity.INVALID for result in results):
        return Failed(name=INVALID, message=message, data=results)
    return Completed(message=message, data=results)
