"""A comparison for machines: `sglang-sweep compare A B --json`."""

from typing import Any

from tasks.results.comparison import CellComparison, Comparison, TrialComparison
from tasks.results.report_json import estimate_json, interval_json

Json = dict[str, Any]


def comparison_json(found: Comparison) -> Json:
    """Build the comparison: a pair of trials an entry, a cell and metric an entry within it."""
    return {
        "of": found.of,
        "against": found.against,
        "pairs": [_pair(pair) for pair in found.pairs],
        "left_out": list(found.unmatched),
        "changes": list(found.changes),
        "stability": list(found.stability),
    }


def _pair(pair: TrialComparison) -> Json:
    return {
        "label": pair.label,
        "trial_id": pair.trial_id,
        "reference_id": pair.reference_id,
        "cells": [_cell(cell) for cell in pair.cells],
    }


def _cell(cell: CellComparison) -> Json:
    ratio = cell.ratio
    return {
        "cell": str(cell.cell),
        "metric": cell.metric,
        "value": estimate_json(cell.mine),
        "reference": estimate_json(cell.reference),
        "ratio": None if ratio is None else ratio.value,
        "interval": None if ratio is None else interval_json(ratio.interval),
        "verdict": str(cell.verdict),
        "note": cell.note,
        "borrowed_noise": None if cell.noise is None else cell.noise.spread,
    }
