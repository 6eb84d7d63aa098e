"""The report for people: one HTML file that needs nothing else, on a screen or on paper."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from settings.objective import Constraint
from settings.quantities import show_duration
from settings.workload import Workload
from tasks.domain.facts import StackReport
from tasks.results.cells import constraint_cell
from tasks.results.command_line import deploy_command
from tasks.results.comparison import TrialComparison, compare
from tasks.results.files import write_whole
from tasks.results.plots import MOST_TRIALS, plots
from tasks.results.records import StoredSweep
from tasks.results.view import View, failure_groups, view
from tasks.results.wording import (
    ABSENT,
    estimate_text,
    gain_text,
    interval_text,
    metric_title,
    number,
    remedies_text,
    time_text,
    value_text,
)

_TEMPLATES = Path(__file__).parent / "templates"


def write_page(stored: StoredSweep, path: Path) -> None:
    """Write the report as one file; raises `StoreError`."""
    write_whole(path, page_html(stored).encode("utf-8", errors="replace"))


def page_html(stored: StoredSweep) -> str:
    """Lay out the whole report."""
    page = view(stored)
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "gain": gain_text,
        "interval": interval_text,
        "estimate": estimate_text,
        "number": number,
        "metric": metric_title,
        "time": time_text,
        "value": value_text,
        "duration": show_duration,
        "remedies": remedies_text,
        "breakable": _breakable,
    }
    return environment.get_template("page.html.j2").render(
        page=page,
        record=stored.record,
        command=_command(page),
        against_baseline=_against_baseline(page),
        plots=plots(page),
        most_trials=MOST_TRIALS,
        failures=failure_groups(page.failures),
        bounds=tuple(_bounds(stored)),
        workloads=tuple(_workload(workload) for workload in stored.sweep.workloads),
        stacks=tuple(_stack(report) for report in stored.record.stacks),
        absent=ABSENT,
    )


def _breakable(name: str) -> Markup:
    """Let a long name break after a dot or an underscore, and nowhere else."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[._/])", name))


def _command(page: View) -> str:
    best = page.selection.best
    return (best and deploy_command(best.result)) or ""


def _against_baseline(page: View) -> TrialComparison | None:
    """Compare the best with the baseline at every level, not only where it was chosen."""
    best, baseline = page.selection.best, page.selection.baseline
    if best is None or baseline is None or best.result is baseline or not baseline.levels:
        return None
    return compare(best.result, baseline, metrics=page.metrics, force=True)


def _bounds(stored: StoredSweep) -> Iterator[str]:
    for constraint in stored.sweep.constraints:
        cell = constraint_cell(stored.sweep, constraint)
        yield f"{metric_title(constraint.metric)} {_bound(constraint)} at {cell}"


def _bound(constraint: Constraint) -> str:
    parts = [] if constraint.min is None else [f"at least {constraint.min:,g}"]
    parts += [] if constraint.max is None else [f"at most {constraint.max:,g}"]
    return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class _WorkloadRow:
    name: str
    dataset: str
    lengths: str
    levels: str
    requests: str


def _workload(workload: Workload) -> _WorkloadRow:
    kind = "requests in flight" if workload.concurrency else "requests a second"
    levels = ", ".join(f"{level:g}" for level in (*workload.concurrency, *workload.request_rate))
    return _WorkloadRow(
        name=workload.name,
        dataset=workload.dataset,
        lengths=f"{workload.input_len:,} in, {workload.output_len:,} out",
        levels=f"{levels} {kind}",
        requests=f"{workload.requests:,} a level",
    )


@dataclass(frozen=True, slots=True)
class _StackRow:
    interpreter: str
    fingerprint: str
    python: str
    platform: str
    gpus: str
    packages: tuple[tuple[str, str], ...]


def _stack(report: StackReport) -> _StackRow:
    facts = report.facts
    packages = [(package.name, package.version or ABSENT) for package in facts.packages]
    packages += [(f"torch {name}", str(value)) for name, value in facts.torch.items()]
    return _StackRow(
        interpreter=report.stack,
        fingerprint=report.fingerprint,
        python=facts.python_version,
        platform=facts.platform,
        gpus=_gpus(report),
        packages=tuple(packages),
    )


def _gpus(report: StackReport) -> str:
    """Count GPUs of a kind: `8 × NVIDIA RTX PRO 6000, driver 580.95.05`."""
    kinds: dict[tuple[str, str], int] = {}
    for gpu in report.facts.gpus:
        key = (gpu.name, gpu.driver_version)
        kinds[key] = kinds.get(key, 0) + 1
    return "; ".join(
        f"{count} × {name}" + (f", driver {driver}" if driver else "")
        for (name, driver), count in kinds.items()
    )
