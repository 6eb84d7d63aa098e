"""The history for machines: `sglang-sweep history --json`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tasks.results.history import History, Night
from tasks.results.regression import Level, LevelShift, Standing
from tasks.results.report_json import estimate_json, interval_json, ratio_json

Json = dict[str, Any]


def history_json(past: History, standings: Sequence[Standing]) -> Json:
    """Build the history: a night an entry, the shifts of levels, and where each is expected."""
    return {
        "nights": [_night(night) for night in past.nights],
        "shifts": [_shift(shift) for among in standings for shift in among.shifts],
        "levels": [_level(level) for among in standings for level in among.levels],
        "warnings": [*past.warnings, *(w for among in standings for w in among.warnings)],
    }


def _night(night: Night) -> Json:
    record = night.record
    return {
        "sweep_id": record.sweep_id,
        "name": record.sweep.name,
        "host": record.sweep.host,
        "state": str(record.state),
        "reason": record.reason,
        "started_at": record.started_at,
        "objective": {"metric": night.metric, "cell": night.cell},
        "best": night.best_label or None,
        "best_objective": estimate_json(night.best),
        "baseline_objective": estimate_json(night.baseline),
        "gain": ratio_json(night.gain),
        "change": ratio_json(night.change),
        "baseline_change": ratio_json(night.baseline_change),
    }


def _shift(shift: LevelShift) -> Json:
    return {
        "metric": shift.metric,
        "what": shift.what,
        "ratio": shift.ratio,
        "interval": interval_json(shift.interval),
        "better": shift.better,
        "alarm": shift.alarm,
        "began": shift.began.sweep_id,
        "found": shift.found.sweep_id,
        "changes": list(shift.changes),
    }


def _level(level: Level) -> Json:
    content = asdict(level)
    return {**content, "cell": str(level.cell), "band": interval_json(level.band)}
