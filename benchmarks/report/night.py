"""A night that might have been: 200 configurations of the running example, written as a store.

Nothing is measured here. A model of the throughput (`_speed`) gives every trial its figures, with
noise from launch to launch; some launches fail, one is cured, one kind answers wrongly. A dozen
earlier nights lie beside it, a driver in between costs 3 %.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from settings.sweep import Sweep
from tasks.domain.configuration import Attempt, Spell, Trial, TrialResult, TrialVerdict
from tasks.domain.diagnosis import Action, Diagnosis, Evidence, Phase, Remedy
from tasks.domain.facts import GpuFacts, PackageFacts, StackFacts, StackReport
from tasks.domain.measurement import (
    LevelResult,
    RequestOutcome,
    RequestRecord,
    RunVerdict,
    Validity,
)
from tasks.results.files import write_whole
from tasks.results.folders import SweepFolder
from tasks.results.frames import save_requests, save_summary, trial_rows
from tasks.results.records import SweepRecord, SweepState, dump_record, dump_trial
from tasks.results.selection import select
from tasks.results.store import own_versions
from tasks.search.grid import plan_trials

NIGHT = 1_796_004_000.0  # 2026-11-30T02:00:00Z
DAY_S = 86_400.0
LEVELS = (1, 16, 64)
REQUESTS = 256
INPUT, OUTPUT = 1024, 512
NOISE = 0.006
PYTHON = "/root/ml-env/bin/python3"
CUDNN = Remedy("skip SGLang's cuDNN version check", env={"SGLANG_DISABLE_CUDNN_CHECK": "1"})
SWEEP = Sweep.model_validate(
    {
        "name": "kimi-k2.5-wide",
        "host": "blackwell",
        "server": {
            "model_path": "/shared/kimi-k2.5-int4",
            "args": {"tp": 8, "trust_remote_code": True, "disable_custom_all_reduce": True},
            "env": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "SYS"},
        },
        "axes": {
            "cuda_graph_max_bs": [32, 64, 128, 192, 256],
            "speculative_steps": [0, 2, 3, 5, 7],
            "nccl_channels": [8, 16],
            "args.attention_backend": ["flashinfer", "triton"],
            "args.enable_torch_symm_mem": [False, True],
        },
        "speculative": {"draft_model_path": "/shared/kimi-k2.5-eagle3"},
        "workloads": [
            {
                "name": "chat",
                "input_len": INPUT,
                "output_len": OUTPUT,
                "concurrency": list(LEVELS),
                "requests": REQUESTS,
            }
        ],
        "objective": {"metric": "output_throughput", "workload": "chat", "concurrency": 64},
        "constraints": [{"metric": "p99_ttft_ms", "max": 2000}],
        "baseline": {"cuda_graph_max_bs": 64, "nccl_channels": 16},
        "search": {"repeats": 2},
    }
)


@dataclass(frozen=True, slots=True)
class _Invented:
    """The night's clock and its chance."""

    started_at: float
    random: np.random.Generator
    factor: float = 1.0


def write_store(store: Path, earlier: int = 12, trials: int = 200) -> str:
    """Write tonight, and the nights before as their summaries; returns tonight's id."""
    planned = plan_trials(SWEEP)[:trials]
    for night in range(earlier, 0, -1):
        started = NIGHT - night * DAY_S
        factor = 1.03 if night > earlier // 3 else 1.0
        driver = "575.57.08" if night > earlier // 3 else "580.95.05"
        # The history needs no more of them than these.
        _write(store, planned[:40], _Invented(started, _random(night), factor), driver, raw=False)
    return _write(store, planned, _Invented(NIGHT, _random(0)), "580.95.05", raw=True)


def _random(night: int) -> np.random.Generator:
    return np.random.default_rng(night)


def _write(
    store: Path, planned: Sequence[Trial], night: _Invented, driver: str, *, raw: bool
) -> str:
    stamp = np.datetime64(int(night.started_at), "s").astype(str).replace("-", "").replace(":", "")
    folder = SweepFolder(store, f"{stamp}Z-{SWEEP.name}-be0c")
    results, ended_at = _results(planned, night)
    record = SweepRecord(
        folder.sweep_id,
        SWEEP,
        SweepState.COMPLETED_WITH_FAILURES,
        night.started_at,
        ended_at,
        ended_at,
        versions=own_versions(),
        stacks=(_stack(driver),),
    )
    write_whole(folder.record, dump_record(record))
    save_summary(folder, (trial_rows(record, result) for result in results))
    if raw:
        best = select(SWEEP, results).best
        for result in results:
            if result.trial.baseline or (best and result is best.result):
                save_requests(folder, _with_records(result, night.random))
            write_whole(folder.trial_record(result.trial.trial_id), dump_trial(result))
    return folder.sweep_id


def _results(planned: Sequence[Trial], night: _Invented) -> tuple[tuple[TrialResult, ...], float]:
    """Every trial, launched in turn: first all once, then all again backwards."""
    found = {trial.trial_id: TrialResult(trial, TrialVerdict.PENDING) for trial in planned}
    clock = night.started_at + 45.0
    for repeat, order in ((1, planned), (2, planned[::-1])):
        for trial in order:
            result, clock = _launched(found[trial.trial_id], repeat, clock, night)
            found[trial.trial_id] = result
    return tuple(found.values()), clock + 20.0


def _launched(
    result: TrialResult, repeat: int, clock: float, night: _Invented
) -> tuple[TrialResult, float]:
    if result.verdict in (TrialVerdict.PRUNED, TrialVerdict.INCORRECT):
        return result, clock
    trial = result.trial
    axes = trial.axes
    steps, graphs = axes["speculative_steps"], axes["cuda_graph_max_bs"]
    assert isinstance(steps, int)
    assert isinstance(graphs, int)
    if trial.baseline and repeat == 1:
        result, clock = _failed(result, repeat, clock, _cudnn())
    if graphs == 256 and steps >= 5:
        if axes["nccl_channels"] == 16:
            reason = "not launched: a smaller configuration ran out of memory at graph capture"
            return replace(result, verdict=TrialVerdict.PRUNED, reason=reason), clock
        result, clock = _failed(result, repeat, clock, _out_of_memory(graphs))
        return replace(
            result, verdict=TrialVerdict.PRUNED, reason=_out_of_memory(graphs).cause
        ), clock
    if steps == 7 and axes["args.attention_backend"] == "triton":
        result, clock = _served(result, repeat, clock, levels=False)
        reason = "2 of 3 canary answers differ from the baseline's"
        return replace(result, verdict=TrialVerdict.INCORRECT, reason=reason), clock
    result, clock = _served(result, repeat, clock, levels=True)
    measured = tuple(_level(trial, level, repeat, night) for level in LEVELS)
    return replace(
        result,
        verdict=TrialVerdict.MEASURED,
        levels=(*result.levels, *measured),
        remedies=(CUDNN,),
        repeats_done=repeat,
    ), clock


def _failed(
    result: TrialResult, repeat: int, clock: float, diagnosis: Diagnosis
) -> tuple[TrialResult, float]:
    seconds = {"clean": 6.0, "start": 14.0}
    if diagnosis.phase is Phase.GRAPH_CAPTURE:
        seconds |= {"distributed": 9.0, "weights": 96.0, "kv_cache": 3.0, "graph_capture": 31.0}
    attempt, clock = _attempt(result, repeat, clock, {**seconds, "stop": 7.0})
    attempt = replace(attempt, ready_s=None, exit_code=1, diagnosis=diagnosis, remedies=())
    return replace(result, attempts=(*result.attempts, attempt)), clock


def _served(
    result: TrialResult, repeat: int, clock: float, *, levels: bool
) -> tuple[TrialResult, float]:
    graphs = result.trial.axes["cuda_graph_max_bs"]
    assert isinstance(graphs, int)
    seconds = {"clean": 5.0, "start": 15.0, "distributed": 9.0, "weights": 94.0, "kv_cache": 3.0}
    seconds |= {"graph_capture": 18.0 + graphs / 6, "warmup": 7.0, "canary": 4.0}
    if levels:
        seconds["load"] = 150.0
    attempt, clock = _attempt(result, repeat, clock, {**seconds, "stop": 9.0})
    return replace(result, attempts=(*result.attempts, attempt)), clock


def _attempt(
    result: TrialResult, repeat: int, clock: float, seconds: Mapping[str, float]
) -> tuple[Attempt, float]:
    spells = []
    for doing, lasted_s in seconds.items():
        spells.append(Spell(doing, clock, lasted_s))
        clock += lasted_s
    configuration = result.trial.configuration
    words = [PYTHON, "-m", "sglang.launch_server", "--model-path", configuration.model_path]
    for name, value in configuration.args.items():
        words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    attempt = Attempt(
        number=len(result.attempts) + 1,
        repeat=repeat,
        command=(*words, "--host", "127.0.0.1", "--port", "30000"),
        env={**configuration.env, **CUDNN.env},
        stack=PYTHON,
        started_at=spells[0].started_at + spells[0].seconds,
        remedies=(CUDNN,),
        ready_s=sum(list(seconds.values())[1:-2]),
        folder=f"attempt-{len(result.attempts) + 1}",
        spells=tuple(spells),
    )
    return attempt, clock


def _speed(trial: Trial, concurrency: int) -> float:
    """Tokens a second: batching, graphs that are too small, drafts that help only few users."""
    axes = trial.axes
    steps, graphs = axes["speculative_steps"], axes["cuda_graph_max_bs"]
    assert isinstance(steps, int)
    assert isinstance(graphs, int)
    speed = float(92.6 * concurrency**0.64)
    speed *= 1 - 0.09 * max(0.0, math.log2(concurrency / graphs))
    speed *= 1 + 0.004 * math.log2(graphs / 32)
    if steps:
        accepted = 1 + 0.5 * (1 - 0.62**steps)
        speed *= accepted / (1 + 0.055 * steps * (1 + math.log2(concurrency) / 6))
        speed *= 0.96 if axes["args.attention_backend"] == "triton" else 1.0
    speed *= 1.02 if axes["nccl_channels"] == 16 else 1.0
    speed *= 1.025 if axes["args.enable_torch_symm_mem"] else 1.0
    return speed


def _level(trial: Trial, concurrency: int, repeat: int, night: _Invented) -> LevelResult:
    random = night.random
    throughput = _speed(trial, concurrency) * night.factor * math.exp(random.normal(0, NOISE))
    ttft = (150.0 + 14.0 * concurrency) * math.exp(random.normal(0, 0.03))
    tpot = 1000 * concurrency / throughput
    duration = REQUESTS * OUTPUT / throughput
    power_w = 8 * (260 + 190 * math.log2(concurrency + 1) / 6.02)
    metrics = {
        "duration": duration,
        "completed": float(REQUESTS),
        "total_output_tokens": float(REQUESTS * OUTPUT),
        "request_throughput": REQUESTS / duration,
        "output_throughput": throughput,
        "gpu_power_w": power_w,
        "gpu_energy_j": power_w * duration,
        "output_tokens_per_joule": throughput / power_w,
        **dict(_spread("ttft", ttft, 0.25)),
        **dict(_spread("tpot", tpot, 0.06)),
        **dict(_spread("itl", tpot, 0.35)),
        **dict(_spread("e2e_latency", ttft + tpot * OUTPUT, 0.08)),
    }
    verdict = RunVerdict(Validity.VALID)
    return LevelResult("chat", concurrency, None, repeat, metrics, verdict)


def _spread(name: str, mean: float, spread: float) -> Iterator[tuple[str, float]]:
    for statistic, deviations in {"mean": 0.1, "median": 0.0, "p99": 2.33}.items():
        yield f"{statistic}_{name}_ms", mean * math.exp(spread * deviations)


def _with_records(result: TrialResult, random: np.random.Generator) -> TrialResult:
    levels = (
        replace(level, records=tuple(_record(level, n, random) for n in range(REQUESTS)))
        for level in result.levels
    )
    return replace(result, levels=tuple(levels))


def _record(level: LevelResult, index: int, random: np.random.Generator) -> RequestRecord:
    sent = 10_000_000_000 + index * 50_000_000
    ttft = level.metrics["median_ttft_ms"] * math.exp(random.normal(0, 0.25))
    gaps = level.metrics["median_itl_ms"] * np.exp(random.normal(0, 0.35, OUTPUT))
    arrivals = (sent + 1e6 * (ttft + np.cumsum(gaps) - gaps[0])).astype(int).tolist()
    return RequestRecord(
        index=index,
        intended_ns=sent,
        sent_ns=sent,
        end_ns=arrivals[-1] + 1_000,
        outcome=RequestOutcome.FINISHED,
        arrival_ns=tuple(arrivals),
        cumulative_tokens=tuple(range(1, OUTPUT + 1)),
        first_byte_ns=arrivals[0],
        first_text_ns=arrivals[0],
        prompt_tokens=INPUT,
        completion_tokens=OUTPUT,
        requested_tokens=OUTPUT,
        finish_reason="length",
        http_status=200,
    )


def _cudnn() -> Diagnosis:
    return Diagnosis(
        "cudnn-conv3d-check",
        Phase.START,
        Action.RETRY,
        "SGLang refuses torch 2.9.1 with a cuDNN below 9.15",
        CUDNN,
        (Evidence(118, "RuntimeError: PyTorch 2.9.1 with cuDNN 9.10.2 has a Conv3d bug"),),
    )


def _out_of_memory(graphs: int) -> Diagnosis:
    return Diagnosis(
        "oom-cuda-graph-capture",
        Phase.GRAPH_CAPTURE,
        Action.PRUNE,
        f"the CUDA graphs of {graphs} sequences don't fit beside the weights",
        evidence=(Evidence(2_204, "torch.OutOfMemoryError: CUDA out of memory. Tried 2.10 GiB"),),
    )


def _stack(driver: str) -> StackReport:
    gpu = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    packages = {"torch": "2.9.1+cu130", "sglang": "0.5.9", "flashinfer": "0.6.1"}
    facts = StackFacts(
        interpreter=PYTHON,
        python_version="3.12.3",
        platform="Linux-6.8.12-pve-x86_64",
        packages=tuple(PackageFacts(n, v, True, 1.2) for n, v in packages.items()),
        torch={"cuda": "13.0", "cudnn": 91002, "nccl": "2.28.3"},
        gpus=tuple(GpuFacts(i, gpu, f"GPU-{i}", 97_887, 4, driver, "12.0") for i in range(8)),
    )
    return StackReport("blackwell", PYTHON, "9f2c41d07be8", facts, ())
