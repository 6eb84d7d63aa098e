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
    dataset: Literal["random", "text"] = "random",
    input_len: int = 512,
    output_len: int = 128,
    concurrency: Annotated[tuple[int, ...], Parameter(negative=(), consume_multiple=True)] = (),
    request_rate: Annotated[tuple[float, ...], Parameter(negative=(), consume_multiple=True)] = (),
    requests: int = 64,
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
        The server's base URL, http://host:port.
    backend
        Which of its interfaces to speak: /generate, /v1/completions or /v1/chat/completions.
    dataset
        Random token ids, or real text.
    input_len
        Prompt length in tokens.
    output_len
        Tokens to generate, end-of-sequence ignored.
    concurrency
        Requests in flight (closed loop); several levels may be given. 1 if nothing is said.
    request_rate
        Requests per second (Poisson, open loop); several levels may be given.
    requests
        Requests per level.
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

    from flows.commands.bench import Asked, run_bench

    levels = {"concurrency": concurrency, "request_rate": request_rate}
    if not concurrency and not request_rate:
        levels["concurrency"] = (1,)
    workload = {
        "name": "bench",
        "dataset": dataset,
        "input_len": input_len,
        "output_len": output_len,
        "requests": requests,
        **{name: value for name, value in levels.items() if value},
    }
    asked = Asked(url, backend, model, workload, seed, processes, out_file, as_json)
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
