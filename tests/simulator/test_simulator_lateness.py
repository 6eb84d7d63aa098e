"""How late the server says it was, by hand."""

import pytest

from simulator.lateness import BUCKET_S, Lateness


def test_nothing_sent_is_not_late() -> None:
    assert Lateness().figures() == {"chunks": 0, "p50_ms": 0, "p99_ms": 0, "max_ms": 0}


def test_percentiles_are_the_upper_end_of_a_bucket_and_the_maximum_is_exact() -> None:
    lateness = Lateness()
    for _ in range(98):
        lateness.record(0.000_101)
    lateness.record(0.003)
    lateness.record(0.5)
    assert lateness.percentile_s(50) == pytest.approx(6 * BUCKET_S)
    assert lateness.percentile_s(99) == pytest.approx(0.003, abs=1.1 * BUCKET_S)
    assert lateness.percentile_s(100) == pytest.approx(0.2)
    assert lateness.figures()["max_ms"] == 500


def test_one_chunk_is_every_percentile() -> None:
    lateness = Lateness()
    lateness.record(0.000_005)
    assert lateness.percentile_s(50) == lateness.percentile_s(99) == 0.000_005
