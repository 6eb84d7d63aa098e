import math

import pytest

from settings.metric_names import LOAD_METRIC_NAMES
from settings.workload import Slo
from tasks.domain.measurement import RequestOutcome
from tasks.load.metrics import (
    accepted,
    compute_metrics,
    duration_of,
    mean_in_flight,
    output_tokens,
    steady_window,
)
from tests.load.factory import MS, record

ONE = record(sent_ms=100, chunks={110: 1, 114: 2, 122: 3}, end_ms=123, prompt_tokens=7)
"""TTFT 10, E2E 23, TPOT 6.5, gaps 4 and 8."""

TWO = record(1, sent_ms=100, chunks={130: 1, 136: 3}, end_ms=136, prompt_tokens=5)
"""TTFT 30, E2E 36, TPOT 3; a gap of 6 for a chunk of two tokens."""


def test_nothing():
    metrics = compute_metrics([])
    assert metrics == {
        "duration": 0.0,
        "completed": 0,
        "failed": 0,
        "total_input_tokens": 0,
        "total_output_tokens": 0,
        "cached_tokens": 0,
    }


def test_one_request():
    metrics = compute_metrics([ONE], concurrency=1)
    assert metrics["duration"] == pytest.approx(0.023)
    assert metrics["request_throughput"] == pytest.approx(1 / 0.023)
    assert metrics["output_throughput"] == pytest.approx(3 / 0.023)
    assert metrics["input_throughput"] == pytest.approx(7 / 0.023)
    assert metrics["total_throughput"] == pytest.approx(10 / 0.023)
    assert metrics["concurrency"] == pytest.approx(1.0)
    for statistic in ("mean", "median", "p90", "p95", "p99"):
        assert metrics[f"{statistic}_ttft_ms"] == pytest.approx(10)
        assert metrics[f"{statistic}_e2e_latency_ms"] == pytest.approx(23)
        assert metrics[f"{statistic}_tpot_ms"] == pytest.approx(6.5)
    assert metrics["std_ttft_ms"] == 0
    assert (metrics["mean_itl_ms"], metrics["median_itl_ms"]) == (6, 6)
    assert metrics["std_itl_ms"] == pytest.approx(2)
    assert metrics["p90_itl_ms"] == pytest.approx(4 + 0.9 * 4)
    assert metrics["max_concurrent_requests"] == 1
    assert metrics["max_output_tokens_per_s"] == 3


def test_two_requests():
    metrics = compute_metrics([ONE, TWO], concurrency=2)
    assert metrics["duration"] == pytest.approx(0.036)
    assert metrics["completed"] == 2
    assert (metrics["total_input_tokens"], metrics["total_output_tokens"]) == (12, 6)
    assert metrics["concurrency"] == pytest.approx((23 + 36) / 36)
    assert metrics["mean_ttft_ms"] == pytest.approx(20)
    assert metrics["std_ttft_ms"] == pytest.approx(10)
    assert metrics["p99_ttft_ms"] == pytest.approx(10 + 0.99 * 20)
    assert metrics["mean_tpot_ms"] == pytest.approx((6.5 + 3) / 2)
    # Per token the gaps are 4, 8, 3, 3; per chunk they are 4, 8, 6.
    assert metrics["mean_itl_ms"] == pytest.approx(4.5)
    assert metrics["median_itl_ms"] == pytest.approx(3.5)
    assert metrics["mean_icl_ms"] == pytest.approx(6)
    assert metrics["median_icl_ms"] == pytest.approx(6)
    assert metrics["max_concurrent_requests"] == 2


def test_every_metric_that_a_sweep_may_name_is_there():
    metrics = compute_metrics([ONE, TWO], concurrency=2, accept_length=2.5)
    assert set(LOAD_METRIC_NAMES) <= set(metrics)
    assert all(math.isfinite(value) for value in metrics.values())


def test_one_token_gives_no_tpot_and_no_itl():
    metrics = compute_metrics([record(chunks={10: 1}, end_ms=11)])
    assert metrics["mean_ttft_ms"] == 10
    assert not [name for name in metrics if "tpot" in name or "itl" in name or "icl" in name]


def test_no_token_gives_no_ttft():
    metrics = compute_metrics([record(chunks={}, end_ms=11)])
    assert metrics["mean_e2e_latency_ms"] == 11
    assert not [name for name in metrics if "ttft" in name]


def test_only_failures_have_no_latency():
    metrics = compute_metrics([record(end_ms=5, outcome=RequestOutcome.REFUSED)])
    assert (metrics["completed"], metrics["failed"]) == (0, 1)
    assert metrics["output_throughput"] == 0
    assert "mean_e2e_latency_ms" not in metrics


def test_failures_count_for_the_duration_only():
    cut = record(2, sent_ms=100, chunks={150: 5}, end_ms=200, outcome=RequestOutcome.CUT)
    metrics = compute_metrics([ONE, cut])
    assert metrics["duration"] == pytest.approx(0.1)
    assert metrics["total_output_tokens"] == 3
    assert metrics["mean_ttft_ms"] == 10


def test_a_warmup_counts_for_nothing():
    warm = record(0, sent_ms=0, chunks={50: 1, 99: 2}, warmup=True)
    assert compute_metrics([warm, ONE]) == compute_metrics([ONE])


def test_latency_counts_from_the_intended_send():
    late = record(sent_ms=8, intended_ns=0, chunks={10: 1, 20: 2})
    metrics = compute_metrics([late])
    assert metrics["mean_ttft_ms"] == 10
    assert metrics["mean_e2e_latency_ms"] == 20


def test_the_servers_count_wins_over_the_chunks():
    assert output_tokens(record(chunks={1: 1, 2: 2}, completion_tokens=3)) == 3
    assert output_tokens(record(chunks={1: 1, 2: 2})) == 2
    assert output_tokens(record()) == 0


def test_an_empty_first_text_is_no_first_token_for_ttft_and_itl():
    request = record(chunks={10: 1, 12: 2, 20: 3}, end_ms=20, first_text_ns=12 * MS)
    metrics = compute_metrics([request])
    assert (metrics["mean_ttft_ms"], metrics["mean_first_token_ms"]) == (12, 10)
    assert metrics["mean_itl_ms"] == 8
    assert metrics["mean_tpot_ms"] == pytest.approx((20 - 12) / 2)


def test_tokens_bundled_with_the_first_chunk_give_no_gap():
    metrics = compute_metrics([record(chunks={10: 3, 16: 4}, end_ms=16)])
    assert metrics["mean_itl_ms"] == 6
    assert metrics["mean_tpot_ms"] == pytest.approx(2)


def test_accept_length_is_of_this_run_where_requests_tell():
    requests = [
        record(completion_tokens=10, verify_steps=4),
        record(completion_tokens=11, verify_steps=3),
        record(completion_tokens=100),
    ]
    assert accepted(requests) == pytest.approx(3)
    assert compute_metrics(requests, accept_length=9.0)["accept_length"] == pytest.approx(3)


def test_accept_length_else_is_the_servers_or_absent():
    assert compute_metrics([ONE], accept_length=2.5)["accept_length"] == 2.5
    assert "accept_length" not in compute_metrics([ONE])


def test_the_busiest_second_counts_tokens_and_not_chunks():
    request = record(chunks={500: 2, 1500: 10, 1900: 20, 2500: 21})
    assert compute_metrics([request])["max_output_tokens_per_s"] == 18


def test_an_end_and_a_send_at_one_moment_do_not_overlap():
    first, second = record(chunks={5: 1}, end_ms=10), record(sent_ms=10, chunks={15: 1}, end_ms=20)
    assert compute_metrics([first, second])["max_concurrent_requests"] == 1


def slots_of_two():
    """Two slots, three requests: tokens at 10, 20 and 12, 22, then 30, 40."""
    return [
        record(0, sent_ms=0, chunks={10: 1, 20: 2}, end_ms=20),
        record(1, sent_ms=0, chunks={12: 1, 22: 2, 32: 3}, end_ms=32),
        record(2, sent_ms=20, chunks={30: 1, 40: 2}, end_ms=40),
    ]


def test_steady_window_of_a_closed_loop():
    window = steady_window(slots_of_two(), 2)
    # From the later of the first tokens of the first two to the first end after the last send.
    assert (window.start_ns, window.end_ns) == (12 * MS, 32 * MS)
    assert compute_metrics(slots_of_two(), 2)["steady_output_throughput"] == pytest.approx(
        4 / 0.020
    )
    assert mean_in_flight(slots_of_two(), window) == pytest.approx(2.0)


def test_slots_that_stay_empty_show_in_the_mean_in_flight():
    requests = slots_of_two()
    requests[2] = record(2, sent_ms=26, chunks={30: 1, 40: 2}, end_ms=40)
    window = steady_window(requests, 2)
    assert mean_in_flight(requests, window) == pytest.approx((20 + 8 + 6) / 20)


def test_steady_window_of_one_request_is_its_decoding():
    window = steady_window([ONE], 1)
    assert (window.start_ns, window.end_ns) == (110 * MS, 123 * MS)
    assert compute_metrics([ONE], 1)["steady_output_throughput"] == pytest.approx(2 / 0.013)


def test_steady_window_of_an_open_loop():
    requests = [
        record(i, sent_ms=10 * i, chunks={10 * i + 20: 1}, end_ms=10 * i + 20) for i in range(6)
    ]
    window = steady_window(requests, None)
    assert (window.start_ns, window.end_ns) == (20 * MS, 50 * MS)
    assert compute_metrics(requests, None)["steady_output_throughput"] == pytest.approx(3 / 0.030)


def test_no_steady_window():
    assert steady_window([], 1) is None
    assert steady_window([record()], 1) is None
    assert steady_window([record(chunks={5: 1}, end_ms=5)], 1) is None
    assert steady_window([ONE], None) is None
    assert "steady_output_throughput" not in compute_metrics([ONE])


def test_duration():
    assert duration_of([]) == 0
    assert duration_of([ONE, TWO]) == pytest.approx(0.036)


def test_goodput_counts_what_keeps_every_bound():
    quick = record(0, chunks={100: 1, 120: 2, 140: 3}, first_text_ns=100 * MS)
    slow_start = record(1, chunks={300: 1, 320: 2, 340: 3}, first_text_ns=300 * MS)
    slow_tokens = record(2, chunks={100: 1, 200: 2, 300: 3}, first_text_ns=100 * MS)
    lost = record(3, outcome=RequestOutcome.CUT, end_ms=1000)
    records = [quick, slow_start, slow_tokens, lost]
    metrics = compute_metrics(records, 4, slo=Slo(ttft_ms=200, tpot_ms=20))
    assert (metrics["request_goodput"], metrics["slo_attainment"]) == (1.0, 0.25)
    metrics = compute_metrics(records, 4, slo=Slo(e2e_ms=320))
    assert metrics["request_goodput"] == 2.0
    assert "request_goodput" not in compute_metrics(records, 4)


def test_the_longest_gap_is_told():
    assert compute_metrics([record(chunks={0: 1, 5: 2, 80: 3, 81: 4})])["max_icl_ms"] == 75.0
    assert "max_icl_ms" not in compute_metrics([record(chunks={0: 1})])


def test_requests_without_verification_dont_dilute_the_accept_length():
    """6 tokens in 2 steps; the other request says 0 steps, a third nothing."""
    with_steps = record(chunks={10: 6}, completion_tokens=6, verify_steps=2)
    without = record(chunks={10: 9}, completion_tokens=9, verify_steps=0)
    unknown = record(chunks={10: 9}, completion_tokens=9)
    assert accepted([with_steps, without, unknown]) == 3


def test_counts_that_the_server_did_not_give_are_no_tokens():
    told, untold = record(chunks={10: 1}, prompt_tokens=7, cached_tokens=2), record(chunks={10: 1})
    metrics = compute_metrics([told, untold])
    assert (metrics["total_input_tokens"], metrics["cached_tokens"]) == (7, 2)


def test_a_chunk_from_before_its_time_counts_for_the_first_second():
    early = record(sent_ms=5, chunks={4: 2, 9: 3}, intended_ns=2_000_000_000)
    assert compute_metrics([early])["max_output_tokens_per_s"] == 3
