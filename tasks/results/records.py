"""What the store keeps of a sweep, and its JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from settings.sweep import Sweep
from tasks.domain.configuration import TrialResult
from tasks.domain.facts import StackReport

_T = TypeVar("_T")

SCHEMA_VERSION = 2
"""The layout of a sweep's files; raised when an older reader would misread them.

2: results may be imported (`imported_from`), and Parquet files tell their layout. A sweep of an
older layout is read as it is, by the defaults of what it lacks; nothing rewrites it.
"""

_RECORDS = {"levels": {"__all__": {"records"}}}
"""The requests of a level go to requests.parquet, not into JSON."""


class SweepState(StrEnum):
    """How far a sweep is, or how it ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    FAILED = "failed"
    REGRESSION = "regression"


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """The content of sweep.json: what was asked for, where, with what, and the state.

    Times are UTC seconds since the epoch; `ended_at` is None while the sweep runs. `flow_run` is
    the id of the Prefect flow run that ran it last. `imported_from` names the files of another
    tool where this wasn't measured here.
    """

    sweep_id: str
    sweep: Sweep
    state: SweepState
    started_at: float
    updated_at: float
    ended_at: float | None = None
    reason: str = ""
    flow_run: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    stacks: tuple[StackReport, ...] = ()
    imported_from: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class StoredSweep:
    """A sweep as it was read; `warnings` name each file that was damaged and left out."""

    record: SweepRecord
    trials: tuple[TrialResult, ...]
    warnings: tuple[str, ...] = ()

    @property
    def sweep(self) -> Sweep:
        """What was asked for."""
        return self.record.sweep


class Damaged(Exception):
    """A file of the store doesn't hold what its name promises; says why in one line."""


def newer_layout(version: int) -> None:
    """Refuse a layout that is newer than this program; raises `Damaged`."""
    if version > SCHEMA_VERSION:
        raise Damaged(
            f"written by a newer sglang-sweep (layout {version}, this one reads up to "
            f"{SCHEMA_VERSION}): update it"
        )


def dump_record(record: SweepRecord) -> bytes:
    """Write sweep.json's content."""
    content = _sweep_record().dump_python(
        record, mode="json", exclude={"sweep"}, fallback=_mapping, warnings=False
    )
    # Durations in JSON mode are rounded to what a person reads; the store keeps them exactly.
    content["sweep"] = record.sweep.model_dump()
    content["schema_version"] = SCHEMA_VERSION
    return _to_json(content)


def load_record(content: bytes) -> SweepRecord:
    """Read sweep.json; raises `Damaged`."""
    return _read(_sweep_record(), content)


def dump_trial(result: TrialResult) -> bytes:
    """Write trial.json's content: everything but the requests."""
    content = _trial_result().dump_python(
        result, mode="json", exclude=_RECORDS, fallback=_mapping, warnings=False
    )
    return _to_json({"schema_version": SCHEMA_VERSION, **content})


def load_trial(content: bytes) -> TrialResult:
    """Read trial.json; raises `Damaged`."""
    return _read(_trial_result(), content)


def _mapping(value: Mapping[str, object]) -> dict[str, object]:
    """Write a mapping that isn't a dict, a read-only view for instance, like one."""
    return dict(value)


# Building an adapter costs milliseconds, so it waits for the first use.
@cache
def _sweep_record() -> TypeAdapter[SweepRecord]:
    return TypeAdapter(SweepRecord)


@cache
def _trial_result() -> TypeAdapter[TrialResult]:
    return TypeAdapter(TrialResult)


def _to_json(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False)
    # A log line may hold bytes that were no text; one such byte mustn't cost the whole record.
    return text.encode("utf-8", errors="replace") + b"\n"


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Write the floats that JSON lacks as the texts that pydantic reads back: `NaN`, `Infinity`."""
    match value:
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


def _read(adapter: TypeAdapter[_T], content: bytes) -> _T:
    try:
        parsed = json.loads(content)
        newer_layout(parsed.get("schema_version", 1))
        return adapter.validate_python(parsed)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Damaged(f"{place}: {first['msg']}") from error
    except (ValueError, AttributeError, TypeError) as error:
        raise Damaged(f"no JSON object: {error}") from error
