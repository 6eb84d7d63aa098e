"""What the raw requests say is what was said when they were measured."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from settings.workload import Slo
from tasks.domain.measurement import RequestOutcome, RequestRecord
from tasks.load.metrics import compute_metrics
from tasks.results.recount import recount
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep
from tests.results import factory
from tests.results.factory import NIGHT

MS = 1_000_000


def record(index: int, sent_ms: int, chunks: dict[int, int], **changes: object) -> RequestRecord:
    arrivals = tuple(at * MS for at in chunks)
    told: dict[str, object] = {
        "index": index,
        "intended_ns": sent_ms * MS,
        "sent_ns": sent_ms * MS,
        "end_ns": arrivals[-1] if arrivals else sent_ms * MS,
        "outcome": RequestOutcome.FINISHED,
        "arrival_ns": arrivals,
        "cumulative_tokens": tuple(chunks.values()),
        "first_text_ns": arrivals[0] if arrivals else None,
        "prompt_tokens": 7,
    }
    return RequestRecord(**{**told, **changes})  # type: ignore[arg-type]


def recounted(tmp_path: Path, *levels, slos=None):
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    result = factory.measured(factory.trial(), levels=levels)
    save_trial(folder, result)
    [found] = recount([folder.requests(result.trial.trial_id)], slos)
    assert found.fault == ""
    return found.runs


def test_by_hand(tmp_path: Path):
    """TTFT 10 and 30; gaps 4, 8, and 6 for two tokens; a failed request; one that warms up."""
    records = (
        record(0, 50, {90: 1}, warmup=True),
        record(0, 100, {110: 1, 114: 2, 122: 3}),
        record(1, 100, {130: 1, 136: 3}),
        record(2, 100, {}, outcome=RequestOutcome.CUT, prompt_tokens=None),
    )
    [run] = recounted(tmp_path, factory.level(1, records=records))
    assert (run.workload, run.level, run.repeat) == ("chat", "c64", 1)
    metrics = run.metrics
    assert (metrics["completed"], metrics["failed"]) == (2, 1)
    assert metrics["duration"] == pytest.approx(0.036)
    assert metrics["output_throughput"] == pytest.approx(6 / 0.036)
    assert metrics["total_input_tokens"] == 14
    assert metrics["mean_ttft_ms"] == pytest.approx(20)
    assert metrics["median_itl_ms"] == pytest.approx(3.5)  # of 3, 3, 4, 8
    assert metrics["median_icl_ms"] == pytest.approx(6)


@pytest.mark.parametrize(("slots", "rate"), [(2, None), (None, 8.0)])
def test_what_is_recounted_is_what_was_measured(
    tmp_path: Path, slots: int | None, rate: float | None
):
    records = tuple(
        record(i, 50 * i, {50 * i + 10: 1, 50 * i + 90: 2 + i % 3}, warmup=i < 2) for i in range(60)
    )
    level = replace(factory.level(1, records=records), concurrency=slots, request_rate=rate)
    [run] = recounted(tmp_path, level)
    measured = compute_metrics(records, slots)
    assert run.metrics == measured
    assert {"steady_output_throughput", "tpot_drift"} <= measured.keys()


def test_a_warm_up_in_the_middle_is_damage(tmp_path: Path):
    records = (record(0, 0, {10: 1}), record(1, 0, {30: 1}, warmup=True))
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    result = factory.measured(factory.trial(), levels=(factory.level(1, records=records),))
    save_trial(folder, result)
    [found] = recount([folder.requests(result.trial.trial_id)])
    assert "chat c64 1: its warm-up isn't at its beginning" in found.fault


def test_runs_are_kept_apart(tmp_path: Path):
    one = (record(0, 0, {10: 1}),)
    two = (record(0, 0, {40: 1}), record(1, 0, {60: 1}))
    levels = [
        factory.level(1, records=one),
        factory.level(1, concurrency=16, records=two),
        factory.level(1, repeat=2, records=two),
    ]
    found = {(r.level, r.repeat): r.metrics for r in recounted(tmp_path, *levels)}
    assert {run: metrics["mean_ttft_ms"] for run, metrics in found.items()} == {
        ("c64", 1): pytest.approx(10),
        ("c16", 1): pytest.approx(50),
        ("c64", 2): pytest.approx(50),
    }


def test_the_slo_of_the_workload_counts(tmp_path: Path):
    records = (record(0, 0, {10: 1, 20: 2}), record(1, 0, {60: 1, 70: 2}))
    slos = {"chat": Slo(ttft_ms=50)}
    [run] = recounted(tmp_path, factory.level(1, records=records), slos=slos)
    assert run.metrics["slo_attainment"] == 0.5


def test_no_file_no_runs():
    assert list(recount([])) == []


def test_a_run_of_nothing_but_failures(tmp_path: Path):
    records = tuple(record(i, 0, {}, outcome=RequestOutcome.REFUSED) for i in range(3))
    [run] = recounted(tmp_path, factory.level(1, records=records))
    assert (run.metrics["completed"], run.metrics["failed"]) == (0, 3)
    assert "mean_ttft_ms" not in run.metrics


def test_chunks_that_lack_their_counts_are_damage(tmp_path: Path):
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    level = factory.level(1, records=(record(0, 0, {10: 1, 20: 2}), record(1, 0, {30: 1})))
    result = factory.measured(factory.trial(), levels=(level,))
    save_trial(folder, result)
    path = folder.requests(result.trial.trial_id)
    counts = pl.Series("cumulative_tokens", [[1], [1, 2]])
    pl.read_parquet(path).with_columns(counts).write_parquet(path)
    [found] = recount([path])
    assert "more arrivals than counts" in found.fault


def test_counts_that_fall_are_damage(tmp_path: Path):
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    level = factory.level(1, records=(record(0, 0, {10: 5, 20: 3}),))
    result = factory.measured(factory.trial(), levels=(level,))
    save_trial(folder, result)
    [found] = recount([folder.requests(result.trial.trial_id)])
    assert "damaged, left out" in found.fault
