"""`setup`: what a Prefect API must know before sweeps run there by night."""

from typing import Annotated

from cyclopts import Parameter

from flows.cli.application import app, ended, out


@app.command
def setup(
    *, notify: str | None = None, every_sweep: Annotated[bool, Parameter(negative=())] = False
) -> int:
    """Set the configured Prefect API up: work pool, queues, limits, automations, alerts.

    May be run again after any change; it says what it created, updated or found as it should be.

    Parameters
    ----------
    notify
        A notification block that gets the alerts, as `prefect block ls` names it:
        slack-webhook/alerts.
    every_sweep
        Also notify of sweeps that ended well.
    """
    from flows.commands.setup import run_setup
    from settings.application import load

    settings, _ = load()
    return ended(run_setup(settings, notify, every_sweep, out))
