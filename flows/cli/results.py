"""`compare`, `report`, `history`, `gc`, `export`, `import`, `recount`, `settings`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from flows.cli.application import AsJson, app, out, print_json

AsMarkdown = Annotated[bool, Parameter(negative=())]


@app.command
def compare(a: str, b: str, *, force: bool = False, as_json: AsJson = False) -> int:
    """Compare two sweeps, two trials, or a sweep's trials with its baseline.

    Parameters
    ----------
    a
        A sweep's id, the beginning of one, or latest; with /TRIAL, one trial of it.
    b
        Likewise, or baseline.
    force
        Compare although workload or software differ.
    as_json
        Print one JSON object.
    """
    from flows.commands.report import compared_json, print_compared

    if as_json:
        content, status = compared_json(a, b, force=force)
        print_json(content)
        return status
    return print_compared(a, b, out, force=force)


@app.command
def report(
    sweep_id: str = "latest", *, as_json: AsJson = False, markdown: AsMarkdown = False
) -> None:
    """Print a sweep's report, and write its HTML page anew.

    Parameters
    ----------
    sweep_id
        A sweep's id, the beginning of one, or latest.
    as_json
        Print one JSON object instead.
    markdown
        Print markdown instead, for a pull request.
    """
    from flows.commands.report import print_stored, stored_json, stored_markdown

    if as_json:
        print_json(stored_json(sweep_id))
    elif markdown:
        out.out(stored_markdown(sweep_id), end="")
    else:
        print_stored(sweep_id, out)


@app.command
def history(name: str | None = None, *, last: int = 30, as_json: AsJson = False) -> None:
    """Look back over the nights: what was best, what shifted since when, what changed that night.

    Parameters
    ----------
    name
        Only sweeps of this name.
    last
        How many sweeps at most.
    as_json
        Print one JSON object.
    """
    from flows.commands.report import nights_json, print_nights

    if as_json:
        print_json(nights_json(name, last))
    else:
        print_nights(name, last, out)


@app.command
def gc(
    *,
    older_than: str | None = None,
    keep: str | None = None,
    yes: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Delete the raw requests of old sweeps, after asking; summaries and reports stay.

    Parameters
    ----------
    older_than
        Of sweeps that began longer ago than this: 30d, 12h.
    keep
        Of all but the newest sweeps that together have no more than this: 20GB.
    yes
        Don't ask.
    """
    from flows.commands.gc import collect

    collect(older_than, keep, out, yes=yes)


@app.command
def export(
    sweep_id: str = "latest",
    *,
    format: Literal["bench-serving", "vllm", "aiperf", "csv", "parquet"] = "bench-serving",
    to: str,
    details: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Write every run of a sweep as another tool writes it.

    Parameters
    ----------
    sweep_id
        A sweep's id, the beginning of one, or latest.
    format
        bench-serving: JSON lines of sglang.bench_serving; vllm: a folder of vllm bench sweep;
        aiperf: a folder with a profile_export_aiperf.json a run; csv: the summary as one table;
        parquet: all tables as they are, below a folder or on object storage (s3://BUCKET/FOLDER).
    to
        The file or folder to write; it mustn't exist, but for parquet.
    details
        With bench-serving: the lists of its --output-details, an item a request.
    """
    from flows.commands.exchange import export_sweep, publish_sweep

    if format == "parquet":
        publish_sweep(sweep_id, to, out)
    else:
        export_sweep(sweep_id, format, Path(to), out, details=details)


@app.command(name="import")
def import_results(
    path: Annotated[tuple[Path, ...], Parameter(negative=())],
    /,
    *,
    name: str | None = None,
    workload: str | None = None,
) -> None:
    """Take results of sglang.bench_serving or vllm bench into the store, to compare with.

    Nobody here saw those servers, so every run is suspect and never decides anything.

    Parameters
    ----------
    path
        JSON lines of bench_serving, JSON of vllm bench serve, folders of vllm bench sweep.
    name
        What the sweep is called in the store.
    workload
        What their workload is called: the name that yours has, to compare cell by cell.
    """
    from flows.commands.exchange import import_paths

    import_paths(path, name, workload, out)


@app.command
def recount(sweep_id: str = "latest") -> int:
    """Work a sweep's metrics out of its raw requests again, and name what differs.

    Parameters
    ----------
    sweep_id
        A sweep's id, the beginning of one, or latest.
    """
    from flows.commands.exchange import recount_sweep

    return recount_sweep(sweep_id, out)


@app.command(name="settings")
def show_settings(*, as_json: AsJson = False) -> None:
    """Show the settings in force and where each value comes from.

    Parameters
    ----------
    as_json
        Print one JSON object.
    """
    from flows.commands.show import print_settings, settings_rows

    print_json(settings_rows()) if as_json else print_settings(out)
