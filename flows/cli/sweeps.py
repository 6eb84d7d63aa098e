"""`demo`, `plan`, `run`: a sweep, whole or only planned."""

from pathlib import Path

from flows.cli.application import AsJson, Overrides, app, ended, err, out, print_json
from tasks.domain.errors import InputError


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
        print_json(plan_json(sweep, settings))
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
    return ended(run_sweep(sweep, resume, settings, out))
