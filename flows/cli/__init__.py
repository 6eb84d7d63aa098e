"""The `sglang-sweep` command: a thin face over the flows and the pure rooms."""

from flows.cli import hosts, nightly, results, servers, sweeps
from flows.cli.application import app, main, run_command

__all__ = ["app", "hosts", "main", "nightly", "results", "run_command", "servers", "sweeps"]
