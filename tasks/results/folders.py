"""Where everything lies in a store: the one place that builds its paths."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """One sweep's folder: `<store>/<sweep_id>`."""

    store: Path
    sweep_id: str

    @property
    def path(self) -> Path:
        """The sweep's own folder."""
        return self.store / self.sweep_id

    @property
    def record(self) -> Path:
        """The resolved sweep, versions, stacks and state."""
        return self.path / "sweep.json"

    @property
    def summary(self) -> Path:
        """A row per trial, workload, level and repeat."""
        return self.path / "summary.parquet"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.path / "report.html"

    @property
    def trials(self) -> Path:
        """The folder of all trials."""
        return self.path / "trials"

    def trial(self, trial_id: str) -> Path:
        """Build the path of one trial's folder."""
        return self.trials / trial_id

    def trial_record(self, trial_id: str) -> Path:
        """Build the path of a trial's configuration, attempts and verdict."""
        return self.trial(trial_id) / "trial.json"

    def requests(self, trial_id: str) -> Path:
        """Build the path of a trial's raw requests."""
        return self.trial(trial_id) / "requests.parquet"

    def attempt(self, trial_id: str, number: int) -> Path:
        """Build the path of one launch's folder: cmd.sh, env, server.log, gpu.parquet."""
        return self.trial(trial_id) / f"attempt-{number}"

    def node(self, trial_id: str, number: int, rank: int) -> Path:
        """Build the path of what one node of a launch has left: of the first in its own folder."""
        attempt = self.attempt(trial_id, number)
        return attempt / f"node-{rank}" if rank else attempt


def new_sweep_id(name: str, started_at: float, suffix: str) -> str:
    """Build an id that sorts by time: `20261130T020000Z-kimi-k2.5-nightly-ab12`.

    `started_at` is UTC seconds since the epoch; `suffix` sets two sweeps of one second apart.
    """
    time = datetime.fromtimestamp(started_at, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{time}-{slug(name)}-{suffix}"


def slug(name: str) -> str:
    """Write a sweep's name as its id has it."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:_LONGEST_NAME]
