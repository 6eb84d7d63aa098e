"""The `sglang-sweep` command: a thin face over the flows and the pure rooms.

Commands that need no flow don't import Prefect. Exit status: 0 fine; 1 finished, but nothing is
feasible, requests failed, or something got slower; 2 the input is wrong; 3 the host needs a
person; 130 interrupted.
"""

import os
import sys
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from settings.invalid import InvalidSettings
from tasks.domain.errors import ExitStatus, InputError, SweepError

if TYPE_CHECKING:
    import asyncio


class _Out(Console):
    """Standard output; that nobody reads on isn't an error of ours."""

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `run_command`."""
        raise BrokenPipeError


def _version() -> str:
    from importlib.metadata import version

    return version("sglang-sweep")


out = _Out(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)
app = App(
    name="sglang-sweep",
    version=_version,
    console=out,
    error_console=err,
    result_action="return_value",
    help="Find the fastest correct SGLang server configuration on a GPU host.",
    help_epilogue="""Start with `sglang-sweep demo`: a whole sweep on a simulated host.

Exit status: 0 fine; 1 nothing feasible or requests failed; 2 wrong input; 3 the host needs a
person; 130 interrupted.""",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)

AsJson = Annotated[bool, Parameter(name="--json", negative=())]
Log = Annotated[str, Parameter(allow_leading_hyphen=True)]
Overrides = Annotated[tuple[str, ...], Parameter(name="--set", negative=())]


def main() -> None:
    """Run one command and turn whatever it ends with into an exit status."""
    status = run_command(sys.argv[1:])
    if "prefect" in sys.modules:
        # Prefect's log and event threads wait at exit for an API that may have gone: for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run_command(words: list[str]) -> int:
    """Run one command line; a person's mistake is a line on standard error, never a traceback."""
    try:
        status = app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        return _refused(f"sglang-sweep: {_plain(error)} (sglang-sweep --help)")
    except InvalidSettings as error:
        return _refused(str(error))
    except SweepError as error:
        return _refused(str(error), error.exit_status)
    except KeyboardInterrupt:
        err.print("interrupted", style="yellow")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.OK
    return status if isinstance(status, int) else ExitStatus.OK


def _refused(message: str, status: ExitStatus = ExitStatus.BAD_INPUT) -> ExitStatus:
    """Say what is wrong, a line a fault, however narrow the terminal."""
    err.print(message, style="red", markup=False, soft_wrap=True)
    return status


def _plain(error: CycloptsError) -> str:
    return " ".join(str(error).split())


def _print_json(content: object) -> None:
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    sys.stdout.write(orjson.dumps(content, option=options).decode() + "\n")


@app.command
def demo(*, folder: Path = Path(".demo"), fresh: bool = True) -> int:
    """Run a whole sweep on a simulated GPU host, and check what it measured against the truth.

    Parameters
    ----------
    folder
        Where the simulated host, the settings and the results are kept.
    fresh
        Forget the remedies that an earlier demo learned.
    """
    from flows.commands.demo import run_demo

    return run_demo(folder, out, err, fresh=fresh)


@app.command
def plan(
    file: Path, *, host: str | None = None, overrides: Overrides = (), as_json: AsJson = False
) -> None:
    """Print the trials of a sweep file with their exact command lines, touching no host.

    Parameters
    ----------
    file
        The sweep file.
    host
        Another host of the settings than the file names.
    overrides
        key=value over the file, as search.repeats=3; may be given several times.
    as_json
        Print one JSON object.
    """
    from flows.commands.plan import plan_json, print_plan
    from settings.application import load
    from settings.sweep_file import read_sweep

    sweep = read_sweep(file, overrides, host)
    settings, _ = load()
    if as_json:
        _print_json(plan_json(sweep, settings))
    else:
        print_plan(out, sweep, settings)


@app.command
def run(
    file: Path | None = None,
    *,
    host: str | None = None,
    overrides: Overrides = (),
    resume: str | None = None,
) -> int:
    """Run a sweep here and now, and print its report.

    Uses the Prefect API that is configured (PREFECT_API_URL or a profile), or one of its own.

    Parameters
    ----------
    file
        The sweep file; may be left out with --resume.
    host
        Another host of the settings than the file names.
    overrides
        key=value over the file, as search.repeats=3; may be given several times.
    resume
        The id of a sweep in the store to go on with; what it has is kept.
    """
    from flows.commands.run import run_sweep
    from settings.application import load
    from settings.sweep_file import read_sweep

    if file is None and resume is None:
        raise InputError("run", ["give a sweep file, or --resume with a sweep's id"])
    settings, _ = load()
    sweep = None if file is None else read_sweep(file, overrides, host)
    return _ended(run_sweep(sweep, resume, settings, out))


@app.command
def validate(host: str = "local", *, as_json: AsJson = False) -> int:
    """Judge the software stacks of a host: does it load, does the ABI match, can it serve?

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    as_json
        Print one JSON object a stack.
    """
    from settings.application import load
    from tasks.hosts.connect import connect
    from tasks.stack.render import report_view
    from tasks.stack.validate import as_json as report_json
    from tasks.stack.validate import validate as validate_host

    async def judge() -> int:
        settings, _ = load()
        async with connect(host, settings.host(host)) as reached:
            reports = await validate_host(reached)
        for report in reports:
            _print_json(report_json(report)) if as_json else out.print(report_view(report))
        fit = any(report.fit for report in reports)
        return ExitStatus.OK if fit else ExitStatus.HOST_NEEDS_PERSON

    return _ended(judge())


@app.command
def clean(
    host: str = "local",
    *,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    policy: Literal["own", "user", "all"] | None = None,
) -> None:
    """Free the GPUs of a host and wait until they are.

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    dry_run
        Only print who would be ended.
    policy
        Whose processes may be ended: those of our own runs, those of our user, or all (only on
        a host that is declared dedicated, where it is the default).
    """
    from settings.application import load
    from tasks.gpus.clean import clean as clean_gpus
    from tasks.gpus.clean import plan_for
    from tasks.gpus.plan import Policy
    from tasks.gpus.render import plan_table
    from tasks.hosts.connect import connect
    from tasks.hosts.lock import hold

    async def free() -> None:
        settings, _ = load()
        chosen = None if policy is None else Policy(policy)
        async with connect(host, settings.host(host)) as reached:
            found, sight = await plan_for(reached, chosen)
            out.print(plan_table(host, found, sight.gpus or ()))
            if dry_run:
                return
            async with hold(reached, "sglang-sweep clean", uuid.uuid4().hex, settings.lease, 0.0):
                cleaned = await clean_gpus(reached, chosen)
            out.print(f"clean after {cleaned.took_s:.1f} s, {len(cleaned.ended)} ended")

    _ended(free())


@app.command
def hosts(*, as_json: AsJson = False) -> int:
    """List the configured hosts: reachable or not, their GPUs, who holds them.

    Parameters
    ----------
    as_json
        Print one JSON list.
    """
    from flows.commands.hosts import hosts_json, list_hosts, print_hosts
    from settings.application import load

    async def look() -> int:
        settings, _ = load()
        rows = await list_hosts(settings)
        if as_json:
            _print_json(hosts_json(rows))
            return ExitStatus.OK
        return print_hosts(out, rows)

    return _ended(look())


@app.command
def ps(host: str = "local", *, as_json: AsJson = False) -> None:
    """Show what of ours runs on a host.

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    as_json
        Print one JSON list.
    """
    from flows.commands.hosts import list_ours, ours_json, print_ours
    from settings.application import load
    from tasks.hosts.connect import connect

    async def look() -> None:
        settings, _ = load()
        async with connect(host, settings.host(host)) as reached:
            found = await list_ours(reached)
        _print_json(ours_json(found)) if as_json else print_ours(out, host, found)

    _ended(look())


@app.command
def stop(host: str = "local", *, force: Annotated[bool, Parameter(negative=())] = False) -> None:
    """End what of ours runs on a host: every server that a sweep left there.

    Parameters
    ----------
    host
        A host of the settings; `local` always exists.
    force
        Also where a sweep that is alive holds the host; its trial fails then.
    """
    from flows.commands.hosts import stop_ours
    from settings.application import load
    from tasks.hosts.connect import connect

    async def end() -> None:
        settings, _ = load()
        async with connect(host, settings.host(host)) as reached:
            ended = await stop_ours(reached, force=force)
        out.print(f"{host}: {ended} ended" if ended else f"{host}: nothing of ours runs there")

    _ended(end())


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
    return _ended(run_bench(asked, out, err, stop), stop)


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


@app.command
def compare(a: str, b: str, *, force: bool = False) -> int:
    """Compare two sweeps, or a sweep's trials with its baseline.

    Parameters
    ----------
    a
        A sweep's id, the beginning of one, or latest.
    b
        Likewise, or baseline.
    force
        Compare although workload or software differ.
    """
    from flows.commands.report import print_compared

    return print_compared(a, b, out, force=force)


@app.command
def report(sweep_id: str = "latest", *, as_json: AsJson = False) -> None:
    """Print a sweep's report, and write its HTML page anew.

    Parameters
    ----------
    sweep_id
        A sweep's id, the beginning of one, or latest.
    as_json
        Print one JSON object instead.
    """
    from flows.commands.report import print_stored, stored_json

    if as_json:
        _print_json(stored_json(sweep_id))
    else:
        print_stored(sweep_id, out)


@app.command
def history(name: str | None = None, *, last: int = 30) -> None:
    """Look back over the nights: what was best, and whether that changed.

    Parameters
    ----------
    name
        Only sweeps of this name.
    last
        How many sweeps at most.
    """
    from flows.commands.report import print_nights

    print_nights(name, last, out)


@app.command(name="settings")
def show_settings(*, as_json: AsJson = False) -> None:
    """Show the settings in force and where each value comes from.

    Parameters
    ----------
    as_json
        Print one JSON object.
    """
    from flows.commands.show import print_settings, settings_rows

    _print_json(settings_rows()) if as_json else print_settings(out)


def _ended(work: Coroutine[Any, Any, int | None], gently: "asyncio.Event | None" = None) -> int:
    """Run to the end; Ctrl-C cancels the work, or first asks it gently to end."""
    from flows.commands.interrupt import run_interruptible

    return run_interruptible(work, gently) or ExitStatus.OK
