"""Where the numbers come from, in words: constraints, workloads, software, GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass

from settings.objective import Constraint
from settings.workload import Slo, Workload
from tasks.domain.facts import StackReport
from tasks.results.cells import constraint_cell
from tasks.results.records import StoredSweep
from tasks.results.wording import ABSENT, metric_title


def bounds_text(stored: StoredSweep) -> Iterator[str]:
    """Write each constraint as a person reads it: `p99 TTFT ms at most 2,000 at chat/c64`."""
    for constraint in stored.sweep.constraints:
        cell = constraint_cell(stored.sweep, constraint)
        yield f"{metric_title(constraint.metric)} {_bound(constraint)} at {cell}"


def _bound(constraint: Constraint) -> str:
    parts = [] if constraint.min is None else [f"at least {constraint.min:,g}"]
    parts += [] if constraint.max is None else [f"at most {constraint.max:,g}"]
    return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload in words."""

    name: str
    dataset: str
    lengths: str
    levels: str
    requests: str


def workload_row(workload: Workload) -> WorkloadRow:
    """Say how a workload loads a server."""
    wanted = workload.largest
    closed = bool(workload.concurrency) or (wanted is not None and wanted.of == "concurrency")
    kind = "requests in flight" if closed else "requests a second"
    levels = ", ".join(f"{level:g}" for level in (*workload.concurrency, *workload.request_rate))
    if wanted is not None:
        kept = f"{100 * wanted.attainment:g} % keep {_slo(workload.slo)}"
        levels = f"the most from {wanted.low:g} to {wanted.high:g} at which {kept}:"
    return WorkloadRow(
        name=workload.name,
        dataset=workload.dataset,
        lengths=f"{workload.input_len:,} in, {workload.output_len:,} out",
        levels=f"{levels} {kind}",
        requests=f"{workload.requests:,} a level",
    )


@dataclass(frozen=True, slots=True)
class StackRow:
    """A software stack in words."""

    interpreter: str
    fingerprint: str
    python: str
    platform: str
    gpus: str
    packages: tuple[tuple[str, str], ...]


def stack_row(report: StackReport) -> StackRow:
    """Say what a stack is made of."""
    facts = report.facts
    packages = [(package.name, package.version or ABSENT) for package in facts.packages]
    packages += [(f"torch {name}", str(value)) for name, value in facts.torch.items()]
    return StackRow(
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


def _slo(slo: Slo) -> str:
    """Write an SLO as a person reads it: `TTFT 500 ms, TPOT 40 ms`."""
    bounds = {"TTFT": slo.ttft_ms, "TPOT": slo.tpot_ms, "E2E": slo.e2e_ms}
    return ", ".join(f"{name} {most:g} ms" for name, most in bounds.items() if most is not None)
