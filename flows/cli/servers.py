"""`bench`, `diagnose`: a server that runs, and one that did not."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from flows.cli.application import AsJson, Log, app, ended, err, out


@app.command
def bench(
    url: str,
    *,
    backend: Literal["sglang", "openai", "openai-chat"] = "sglang",
    engine: Literal["native", "sglang", "sglang-rust"] = "native",
    python: str = "python3",
    dataset: Literal["random", "text", "shared-prefix", "file", "conversations"] = "random",
    file: Path | None = None,
    prefix_groups: int = 8,
    prefix_len: int = 1024,
    turns: int = 4,
    input_len: int = 512,
    output_len: int = 128,
    concurrency: Annotated[tuple[int, ...], Parameter(negative=(), consume_multiple=True)] = (),
    request_rate: Annotated[tuple[float, ...], Parameter(negative=(), consume_multiple=True)] = (),
    arrivals: Literal["poisson", "constant", "gamma", "ramp", "trace"] = "poisson",
    burstiness: float = 1.0,
    ramp_start: float = 1.0,
    trace: Path | None = None,
    requests: int = 64,
    precision: float | None = None,
    precise: Literal[
        "output_throughput",
        "request_throughput",
        "mean_ttft_ms",
        "mean_tpot_ms",
        "mean_e2e_latency_ms",
    ] = "output_throughput",
    warmup_requests: int = 1,
    request_timeout: str = "10m",
    slo: Annotated[tuple[str, ...], Parameter(negative=(), consume_multiple=True)] = (),
    extra: str = "{}",
    processes: int | None = None,
    seed: int = 1,
    model: str = "default",
    as_json: AsJson = False,
    out_file: Annotated[Path | None, Parameter(name="--out")] = None,
) -> int:
    """Load a server that already runs, and print what was measured.

    Parameters
    ----------
    url
        The server's base URL, http://host:port or https://host.
    backend
        Which of its interfaces to speak: /generate, /v1/completions or /v1/chat/completions.
    engine
        Our own client, or SGLang's `bench_serving` of another environment, or its client in Rust,
        for a cross-check.
    python
        The interpreter of that environment.
    dataset
        Random token ids, real text, questions behind shared prefixes, prompts of your own, or
        conversations that feed the answers back.
    file
        Prompts for the datasets file and conversations: ShareGPT's JSON, or JSON lines.
    prefix_groups
        Different prefixes of shared-prefix.
    prefix_len
        Length of each of them in tokens.
    turns
        Most turns of one of the conversations; each turn is a request.
    input_len
        Prompt length in tokens.
    output_len
        Tokens to generate, end-of-sequence ignored.
    concurrency
        Requests in flight (closed loop); several levels may be given. 1 if nothing is said.
    request_rate
        Requests per second (open loop); several levels may be given.
    arrivals
        When the requests of an open loop come.
    burstiness
        Of gamma arrivals: below 1 burstier than Poisson, above 1 more even.
    ramp_start
        Requests per second at the beginning of a ramp.
    trace
        File with time stamps, whose pattern is stretched to the rate.
    requests
        Requests per level.
    precision
        End a level early once the 95 % confidence interval is within that share of the mean: 0.01.
    precise
        Of which metric.
    warmup_requests
        Requests before each level, never counted.
    request_timeout
        How long one request may take, such as 90s or 10m.
    slo
        Bounds for the goodput in ms: ttft=200 tpot=50 e2e=5000.
    extra
        Further fields of every request, as a JSON object.
    processes
        Client processes; by default as many as the load needs.
    seed
        Of prompts and arrival times.
    model
        The model's name, for the OpenAI interfaces.
    as_json
        Print one JSON object a level, metrics under the names of bench_serving.
    out_file
        Write every request to this Parquet file.
    """
    import asyncio

    from flows.commands.bench import Asked, read_extra, read_slo, run_bench
    from tasks.domain.sglang import BENCH_ENGINES
    from tasks.load.bench_serving import Foreign

    levels = {"concurrency": concurrency, "request_rate": request_rate}
    if not concurrency and not request_rate:
        levels["concurrency"] = (1,)
    when = {"kind": arrivals, "burstiness": burstiness, "start": ramp_start}
    workload = {
        "name": "bench",
        "dataset": dataset,
        "engine": engine,
        "file": None if file is None else str(file),
        "prefix_groups": prefix_groups,
        "prefix_len": prefix_len,
        "turns": turns,
        "input_len": input_len,
        "output_len": output_len,
        "requests": requests,
        "arrivals": {**when, "file": None if trace is None else str(trace)},
        "precision": {"within": precision, "metric": precise},
        "warmup_requests": warmup_requests,
        "request_timeout": request_timeout,
        "slo": read_slo(slo),
        "extra": read_extra(extra),
        **{name: value for name, value in levels.items() if value},
    }
    foreign = None if engine == "native" else Foreign(python, BENCH_ENGINES[engine])
    asked = Asked(url, backend, model, workload, seed, processes, out_file, as_json, foreign)
    stop = asyncio.Event()
    return ended(run_bench(asked, out, err, stop), stop)


@app.command
def diagnose(log: Log, *, as_json: AsJson = False, exit_code: int | None = None) -> int:
    """Name the cause of a failed launch or run from its log, and the cure.

    Parameters
    ----------
    log
        The server's log; - reads standard input.
    as_json
        Print one JSON object.
    exit_code
        The server's exit status, where it is known: -9 is a kill without a word.
    """
    from flows.commands.diagnose import run_diagnose

    return run_diagnose(log, exit_code, out, as_json=as_json)
