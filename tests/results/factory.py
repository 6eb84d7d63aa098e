"""Realistic results for the tests: the Blackwell host and Kimi K2.5 of the running example."""

from collections.abc import Mapping
from dataclasses import replace

from settings.sweep import Sweep
from tasks.domain.configuration import (
    Attempt,
    ServerConfiguration,
    Trial,
    TrialResult,
    TrialVerdict,
    Value,
)
from tasks.domain.diagnosis import Action, Diagnosis, Evidence, Phase, Remedy
from tasks.domain.facts import GpuFacts, PackageFacts, StackFacts, StackReport
from tasks.domain.measurement import (
    LevelResult,
    RequestOutcome,
    RequestRecord,
    RunVerdict,
    Validity,
)

NIGHT = 1_796_004_000.0  # 2026-11-30T02:00:00Z
FINGERPRINT = "9f2c41d07be8"
INTERPRETER = "/root/ml-env/bin/python3"
LEVELS = (1, 16, 64)

NCCL = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "SYS"}
CUDNN = Remedy(
    summary="skip SGLang's cuDNN version check",
    env={"SGLANG_DISABLE_CUDNN_CHECK": "1"},
)
LESS_MEMORY = Remedy(
    summary="leave more memory to graph capture",
    args={"mem_fraction_static": 0.8},
    alters=True,
)


def sweep(**changes: object) -> Sweep:
    content: dict[str, object] = {
        "name": "kimi-k2.5-nightly",
        "host": "blackwell",
        "server": {
            "model_path": "/shared/kimi-k2.5-int4",
            "args": {"tp": 8, "trust_remote_code": True},
            "env": NCCL,
        },
        "axes": {"cuda_graph_max_bs": [64, 128, 256], "speculative_steps": [0, 3]},
        "speculative": {"draft_model_path": "/shared/kimi-k2.5-eagle3"},
        "workloads": [
            {
                "name": "chat",
                "input_len": 1024,
                "output_len": 512,
                "concurrency": list(LEVELS),
                "requests": 256,
            }
        ],
        "objective": {"metric": "output_throughput", "workload": "chat", "concurrency": 64},
        "constraints": [{"metric": "p99_ttft_ms", "max": 2000}],
        "baseline": {"cuda_graph_max_bs": 64, "speculative_steps": 0},
        "search": {"repeats": 2, "budget": "6h"},
    }
    return Sweep.model_validate({**content, **changes})


def trial(*, baseline: bool = False, stack: str | None = None, **axes: Value) -> Trial:
    args: dict[str, Value] = {"tp": 8, "trust_remote_code": True}
    if "cuda_graph_max_bs" in axes:
        args["cuda_graph_max_bs"] = axes["cuda_graph_max_bs"]
    if axes.get("speculative_steps"):
        args["speculative_algorithm"] = "EAGLE3"
        args["speculative_num_steps"] = axes["speculative_steps"]
    configuration = ServerConfiguration("/shared/kimi-k2.5-int4", args, dict(NCCL), stack)
    return Trial(configuration.digest, axes, configuration, baseline)


def level(
    throughput: float,
    *,
    concurrency: int = 64,
    repeat: int = 1,
    validity: Validity = Validity.VALID,
    reasons: tuple[str, ...] = (),
    records: tuple[RequestRecord, ...] = (),
    **metrics: float,
) -> LevelResult:
    speed = throughput / concurrency
    ttft = 180.0 + 11.0 * concurrency
    written = {
        "duration": 256 * 512 / throughput,
        "completed": 256.0,
        "request_throughput": throughput / 512,
        "output_throughput": throughput,
        "mean_ttft_ms": ttft,
        "median_ttft_ms": ttft * 0.95,
        "p99_ttft_ms": ttft * 1.6,
        "mean_itl_ms": 1000 / speed,
        "median_itl_ms": 980 / speed,
        "p99_itl_ms": 1900 / speed,
        "mean_e2e_latency_ms": ttft + 512_000 / speed,
        **metrics,
    }
    verdict = RunVerdict(validity, reasons)
    return LevelResult("chat", concurrency, None, repeat, written, verdict, records)


def levels(*throughputs: float) -> tuple[LevelResult, ...]:
    """One repeat for each throughput at c64, with the lower levels in proportion."""
    share = {1: 0.035, 16: 0.42, 64: 1.0}
    return tuple(
        level(value * share[concurrency], concurrency=concurrency, repeat=repeat)
        for repeat, value in enumerate(throughputs, start=1)
        for concurrency in LEVELS
    )


def command(wanted: Trial, port: int = 41_771) -> tuple[str, ...]:
    flags = [
        part for name, value in wanted.configuration.args.items() for part in _flag(name, value)
    ]
    model = wanted.configuration.model_path
    return (
        *(INTERPRETER, "-m", "sglang.launch_server", "--model-path", model),
        *flags,
        *("--host", "127.0.0.1", "--port", str(port)),
    )


def _flag(name: str, value: Value) -> tuple[str, ...]:
    flag = "--" + name.replace("_", "-")
    return (flag,) if value is True else (flag, str(value))


def attempt(wanted: Trial, number: int = 1, **changes: object) -> Attempt:
    ready = Attempt(
        number=number,
        repeat=1,
        command=command(wanted),
        env={**wanted.configuration.env, "PYTHONUNBUFFERED": "1"},
        stack=INTERPRETER,
        started_at=NIGHT + 600.0 * number,
        ready_s=212.5,
        folder=f"attempt-{number}",
    )
    return replace(ready, **changes)  # type: ignore[arg-type]


def cudnn_failure() -> Diagnosis:
    return Diagnosis(
        mode="cudnn-conv3d-check",
        phase=Phase.START,
        action=Action.RETRY,
        explanation="SGLang refuses torch 2.9.1 with a cuDNN below 9.15",
        remedy=CUDNN,
        evidence=(
            Evidence(118, "RuntimeError: PyTorch 2.9.1 with cuDNN 9.10.2 has a Conv3d bug"),
            Evidence(121, "set SGLANG_DISABLE_CUDNN_CHECK=1 to bypass <at your own risk>"),
        ),
    )


def capture_oom() -> Diagnosis:
    return Diagnosis(
        mode="oom-graph-capture",
        phase=Phase.GRAPH_CAPTURE,
        action=Action.PRUNE,
        explanation="the CUDA graphs of 256 sequences don't fit beside the weights",
        evidence=(Evidence(2_204, "torch.OutOfMemoryError: CUDA out of memory. Tried 2.10 GiB"),),
    )


def measured(wanted: Trial, *throughputs: float, **changes: object) -> TrialResult:
    count = len(throughputs)
    result = TrialResult(
        wanted,
        TrialVerdict.MEASURED,
        attempts=tuple(attempt(wanted, n, repeat=n) for n in range(1, count + 1)),
        levels=levels(*throughputs),
        fingerprint=FINGERPRINT,
        repeats_done=count,
    )
    return replace(result, **changes)  # type: ignore[arg-type]


def night() -> tuple[TrialResult, ...]:
    """A night of the running example: a cure, a refusal, a prune, a suspect, a baseline."""
    base = trial(baseline=True, cuda_graph_max_bs=64, speculative_steps=0)
    better = trial(cuda_graph_max_bs=128, speculative_steps=0)
    spec = trial(cuda_graph_max_bs=64, speculative_steps=3)
    wrong = trial(cuda_graph_max_bs=128, speculative_steps=3)
    pruned = trial(cuda_graph_max_bs=256, speculative_steps=0)
    implied = trial(cuda_graph_max_bs=256, speculative_steps=3)
    cured = (
        attempt(base, 1, ready_s=None, exit_code=1, diagnosis=cudnn_failure()),
        attempt(base, 2, remedies=(CUDNN,), env={**NCCL, **CUDNN.env}),
        attempt(base, 3, remedies=(CUDNN,), env={**NCCL, **CUDNN.env}, repeat=2),
    )
    return (
        measured(base, 1_204.0, 1_196.0, attempts=cured, remedies=(CUDNN,)),
        measured(better, 1_311.0, 1_305.0),
        measured(spec, 1_249.0, 1_190.0),
        TrialResult(
            wrong,
            TrialVerdict.INCORRECT,
            "2 of 3 canary answers differ from the baseline's",
            attempts=(attempt(wrong, 1),),
            fingerprint=FINGERPRINT,
        ),
        TrialResult(
            pruned,
            TrialVerdict.PRUNED,
            capture_oom().cause,
            attempts=(attempt(pruned, 1, ready_s=None, exit_code=1, diagnosis=capture_oom()),),
            fingerprint=FINGERPRINT,
        ),
        TrialResult(
            implied,
            TrialVerdict.PRUNED,
            f"not launched: {pruned.label} ran out of memory at graph capture",
        ),
    )


def record(index: int, *, chunks: int = 4, start_ns: int = 10_000_000_000) -> RequestRecord:
    sent = start_ns + index * 1_000_000
    arrivals = tuple(sent + 200_000_000 + 10_000_000 * i for i in range(chunks))
    return RequestRecord(
        index=index,
        intended_ns=sent - 5_000,
        sent_ns=sent,
        end_ns=arrivals[-1] + 1_000 if arrivals else sent,
        outcome=RequestOutcome.FINISHED,
        arrival_ns=arrivals,
        cumulative_tokens=tuple(range(1, chunks + 1)),
        first_byte_ns=sent + 199_000_000,
        prompt_tokens=1024,
        completion_tokens=chunks,
        requested_tokens=chunks,
        finish_reason="length",
        http_status=200,
        warmup=index == 0,
    )


def stack_report(fingerprint: str = FINGERPRINT) -> StackReport:
    packages: Mapping[str, str] = {"torch": "2.9.1+cu130", "sglang": "0.5.9", "flashinfer": "0.6.1"}
    gpu = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    facts = StackFacts(
        interpreter=INTERPRETER,
        python_version="3.12.3",
        platform="Linux-6.8.12-pve-x86_64",
        packages=tuple(PackageFacts(n, v, True, 1.2) for n, v in packages.items()),
        torch={"cuda": "13.0", "cudnn": 91002, "nccl": "2.28.3"},
        flags=frozenset({"tp_size", "cuda_graph_max_bs"}),
        gpus=tuple(GpuFacts(i, gpu, f"GPU-{i}", 97_887, 4, "580.95.05", "12.0") for i in range(8)),
    )
    return StackReport("blackwell", INTERPRETER, fingerprint, facts, ())
