"""One run on its way in or out, and what the tools' names of a metric are to ours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from settings.workload import Workload
from tasks.domain.configuration import TrialResult, Value
from tasks.domain.measurement import LevelResult, SearchRole
from tasks.results.records import StoredSweep
from tasks.results.schema import METRICS

Json = dict[str, Any]

SHARED = tuple(c.name for c in METRICS if c.source == "sglang.bench_serving")
"""The metrics that other tools have too, by the names of bench_serving."""

COUNTS = (
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "cached_tokens",
    "max_concurrent_requests",
)
"""Metrics that are whole numbers, and are written so."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of ours, on its way out; `asked` is its workload as the sweep file has it."""

    stored: StoredSweep
    result: TrialResult
    level: LevelResult
    asked: Workload

    @property
    def name(self) -> str:
        """Name the run for a person and for a search: sweep, trial, cell, repeat."""
        ids = self.stored.record.sweep_id, self.result.trial.trial_id
        return "/".join((*ids, self.level.workload, self.level.level, str(self.level.repeat)))

    def metrics(self, names: Sequence[str]) -> Json:
        """Read metrics, whole numbers as such; None for what nobody could tell."""
        found = self.level.metrics
        return {name: _number(name, found.get(name)) for name in names}

    @property
    def provenance(self) -> Json:
        """What the other tools' formats have no word for, and a reader must not miss."""
        return {
            "sweep_id": self.stored.record.sweep_id,
            "trial_id": self.result.trial.trial_id,
            "axes": dict(self.result.trial.axes),
            "repeat": self.level.repeat,
            "verdict": str(self.level.verdict.validity),
            "reasons": list(self.level.verdict.reasons),
            "trial_verdict": str(self.result.verdict),
            "altered": self.result.altered,
        }


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """A run that another tool measured, on its way in.

    `place` is where it stands, `axes` what it says of its server, `asked` the part of a workload
    that the file tells. Exactly one of `concurrency` and `request_rate` is set.
    """

    place: str
    tool: str
    model_path: str
    dataset: str
    concurrency: int | None
    request_rate: float | None
    metrics: Mapping[str, float]
    axes: Mapping[str, Value] = field(default_factory=dict)
    asked: Mapping[str, int] = field(default_factory=dict)


def runs_of(stored: StoredSweep) -> Iterator[StoredRun]:
    """Go through every run of a sweep; what a search found is one of its steps already."""
    workloads = {workload.name: workload for workload in stored.sweep.workloads}
    for result in stored.trials:
        for level in result.levels:
            if level.search is not SearchRole.FOUND:
                yield StoredRun(stored, result, level, workloads[level.workload])


def _number(name: str, value: float | None) -> float | int | None:
    return None if value is None else round(value) if name in COUNTS else value
