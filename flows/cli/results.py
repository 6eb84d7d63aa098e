"""`compare`, `report`, `history`, `gc`, `settings`: what is known."""

from typing import Annotated

from cyclopts import Parameter

from flows.cli.application import AsJson, app, out, print_json


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
        print_json(stored_json(sweep_id))
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
