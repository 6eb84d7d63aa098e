from dataclasses import replace

import pytest

from tasks.domain.measurement import RequestOutcome, RequestRecord, Validity
from tasks.load.metrics import compute_metrics
from tasks.load.target import Level
from tasks.load.verdict import Evidence, judge
from tasks.load.workers import CaptureFacts
from tests.load.factory import record

ONE_SLOT = Level(concurrency=1)
HEALTHY = CaptureFacts(processes=1, reads=1000, cpu_s=0.1, busy=0.1, lag_p99_ns=50_000)


def answered(index: int, sent_ms: float = 0, tokens: int = 4, itl_ms: float = 10, **other):
    """A request of TTFT 20 ms with a token each `itl_ms`."""
    chunks = {sent_ms + 20 + itl_ms * n: n + 1 for n in range(tokens)}
    given = {"requested_tokens": 4, "prompt_tokens": 50, "finish_reason": "length"}
    return record(index, sent_ms=sent_ms, chunks=chunks, **{**given, **other})


def failed(index: int, outcome=RequestOutcome.CUT, error="after 1 tokens: reset", **other):
    return record(index, end_ms=5, outcome=outcome, error=error, **other)


def evidence(records, level=ONE_SLOT, facts=HEALTHY, late_ms=None, asked=None):
    metrics = compute_metrics(records, level.concurrency)
    late_ms = [0.1] * len(records) if late_ms is None else late_ms
    return Evidence(level, asked or len(records), records, metrics, facts, late_ms)


def one_after_the_other(count: int):
    return [answered(i, sent_ms=50 * i) for i in range(count)]


def in_rounds(slots: int, rounds: int):
    return [answered(i, sent_ms=50 * (i // slots)) for i in range(slots * rounds)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_few_requests_one_after_the_other_are_valid(count):
    assert judge(evidence(one_after_the_other(count))).reasons == ()


def test_three_rounds_of_sixteen_are_valid():
    verdict = judge(evidence(in_rounds(16, 3), Level(concurrency=16)))
    assert verdict.reasons == ()
    assert verdict.validity is Validity.VALID


def test_fewer_requests_than_slots_are_suspect():
    verdict = judge(evidence(one_after_the_other(3), Level(concurrency=8)))
    assert verdict.validity is Validity.SUSPECT
    assert verdict.reasons == ("too few requests: 3 never fill 8 slots",)


def test_nothing_finished_is_invalid():
    verdict = judge(evidence([failed(0), failed(1)]))
    assert verdict.validity is Validity.INVALID
    assert verdict.reasons[0] == "no request finished, of 2 sent"


def test_no_records_at_all_are_invalid():
    assert judge(evidence([], asked=4)).validity is Validity.INVALID


def test_many_failures_are_invalid_and_name_the_most_frequent():
    refused = failed(9, RequestOutcome.REFUSED, "Connection refused")
    verdict = judge(evidence([*one_after_the_other(8), failed(8), failed(10), refused]))
    assert verdict.validity is Validity.INVALID
    assert verdict.reasons == ("3 of 11 requests failed (2 cut, 1 refused): after 1 tokens: reset",)


def test_a_few_failures_are_suspect():
    verdict = judge(evidence([*one_after_the_other(20), failed(20)]))
    assert verdict.validity is Validity.SUSPECT
    assert "1 of 21 requests failed" in verdict.reasons[0]


@pytest.mark.parametrize("reason", ["refused", "server died"])
def test_a_dead_server_is_invalid(reason):
    facts = replace(HEALTHY, stopped=reason)
    verdict = judge(evidence(one_after_the_other(3), facts=facts, asked=10))
    assert verdict.validity is Validity.INVALID
    assert verdict.reasons[0] == "server died after 3 of 10 requests"


def test_a_server_that_was_never_there_is_not_said_to_have_died():
    refused = failed(0, RequestOutcome.REFUSED, "Connection refused")
    verdict = judge(evidence([refused], facts=replace(HEALTHY, stopped="refused"), asked=10))
    assert verdict.reasons[1] == "the server can't be reached: Connection refused"


def test_an_interrupted_run_is_suspect_and_its_abandoned_requests_no_failures():
    records = [*one_after_the_other(3), failed(3, RequestOutcome.ABANDONED, "interrupted")]
    facts = replace(HEALTHY, stopped="interrupted")
    verdict = judge(evidence(records, facts=facts, asked=10))
    assert verdict.validity is Validity.SUSPECT
    assert verdict.reasons == ("stopped (interrupted) after 3 of 10 requests",)


def test_another_length_than_asked_for_is_suspect():
    records = [answered(0), answered(1, sent_ms=50, tokens=2)]
    verdict = judge(evidence(records))
    assert verdict.reasons == (
        "1 of 2 requests have another length than asked for, the first 2 tokens instead of 4",
    )


def test_not_a_number_is_invalid():
    verdict = judge(evidence([answered(0, finish_reason="stop: NaN happened")]))
    assert verdict.validity is Validity.INVALID
    assert verdict.reasons == ("1 requests ended because the server computed NaN",)
    broken = replace(
        evidence([answered(0)]), metrics={**evidence([answered(0)]).metrics, "x": float("nan")}
    )
    assert judge(broken).reasons == ("x: not a number",)


def test_late_sends_of_an_open_loop_are_suspect():
    level, late = Level(request_rate=20.0), [0.1] * 9 + [30.0]
    verdict = judge(evidence(one_after_the_other(10), level, late_ms=late))
    assert verdict.validity is Validity.SUSPECT
    assert "ms late at the 99th percentile" in verdict.reasons[0]


def test_one_late_send_of_a_closed_loop_is_nothing():
    late = [0.1] * 99 + [10.0]
    assert judge(evidence(one_after_the_other(100), late_ms=late)).reasons == ()
    verdict = judge(evidence(one_after_the_other(100), late_ms=[5.0] * 100))
    assert verdict.reasons == (
        "requests were sent 5.0 ms late on average: the client can't keep up",
    )


def test_a_client_without_a_core_is_not_called_slow():
    late, facts = [5.0] * 100, replace(HEALTHY, starved_s=2.0)
    (reason,) = judge(evidence(one_after_the_other(100), facts=facts, late_ms=late)).reasons
    assert reason.endswith("the client waited 2.0 s for a core of a busy machine")


def test_the_rate_is_compared_with_the_schedule_as_drawn():
    level = Level(request_rate=20.0)
    punctual = [answered(i, sent_ms=50 * i) for i in range(10)]
    assert judge(evidence(punctual, level)).reasons == ()
    slow = [answered(i, sent_ms=60 * i, intended_ns=50_000_000 * i) for i in range(10)]
    assert "83.3% of the schedule's" in " ".join(judge(evidence(slow, level)).reasons)


def test_slots_that_stay_empty_are_suspect():
    records = [answered(i, sent_ms=70 * (i // 4)) for i in range(16)]
    verdict = judge(evidence(records, Level(concurrency=4)))
    assert verdict.validity is Validity.SUSPECT
    assert "were in flight on average, of 4 asked for" in verdict.reasons[0]


def test_a_growing_queue_is_not_stationary():
    level = Level(request_rate=20.0)
    growing = [answered(i, sent_ms=50 * i, itl_ms=10 + i) for i in range(60)]
    assert "not stationary" in judge(evidence(growing, level)).reasons[0]
    assert judge(evidence(one_after_the_other(60), level)).reasons == ()


@pytest.mark.parametrize(
    ("early_ms", "late_ms", "reason"),
    [
        (10, 10, None),
        (10, 13, None),
        (10, 30, "not stationary: latency grew 2.2-fold from one half to the other"),
        (30, 10, "not stationary: latency fell to 45% from one half to the other"),
    ],
)
def test_a_server_that_changes_its_pace_under_a_closed_loop(early_ms, late_ms, reason):
    paces = [early_ms] * 22 + [late_ms] * 22
    begins = [sum(20 + 3 * pace for pace in paces[:index]) for index in range(44)]
    records = [
        answered(index, sent_ms=begin, itl_ms=pace)
        for index, (begin, pace) in enumerate(zip(begins, paces, strict=True))
    ]
    assert judge(evidence(records)).reasons == ((reason,) if reason else ())
    assert judge(replace(evidence(records), shares=True)).reasons == ()
    few = evidence(records[3:-3])
    assert judge(few).reasons == ()


def test_a_warm_cache_is_suspect_but_a_common_first_token_is_not():
    warm = [answered(i, sent_ms=50 * i, cached_tokens=20) for i in range(4)]
    assert judge(evidence(warm)).reasons == (
        "40% of the prompt tokens came from the server's prefix cache",
    )
    first = [answered(i, sent_ms=50 * i, cached_tokens=1, prompt_tokens=4) for i in range(4)]
    assert judge(evidence(first)).reasons == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"busy": 0.97}, "the load client was saturated (97% of a core)"),
        ({"clock_step_ns": 3_000_000}, "the system clock was stepped by 3.0 ms during the run"),
    ],
)
def test_a_client_that_cannot_measure_says_so(change, reason):
    verdict = judge(evidence(one_after_the_other(20), facts=replace(HEALTHY, **change)))
    assert verdict.validity is Validity.SUSPECT
    assert verdict.reasons == (reason,)


MS = 1_000_000


def blinking(*blinks_ms: tuple[int, int]) -> CaptureFacts:
    return replace(HEALTHY, blinks_ns=tuple((a * MS, b * MS) for a, b in blinks_ms))


def together(*arrivals_ms: int) -> RequestRecord:
    """A request whose chunks arrived at these times."""
    arrivals = tuple(at * MS for at in arrivals_ms)
    return replace(
        answered(0),
        arrival_ns=arrivals,
        cumulative_tokens=tuple(range(1, len(arrivals) + 1)),
        end_ns=arrivals[-1],
        requested_tokens=len(arrivals),
        completion_tokens=len(arrivals),
    )


@pytest.mark.parametrize(
    ("blinks_ms", "blamed"),
    [
        ([], False),  # the server sent two at once
        ([(31, 34)], True),
        ([(5, 9), (31, 34), (60, 70)], True),
        ([(32, 34)], False),  # a fifth of the gap: nothing is merged in so short a time
        ([(5, 9), (36, 60)], False),  # at another time
        ([(5, 70), (40, 45)], True),  # of two processes
    ],
)
def test_a_client_is_blamed_for_what_came_together_while_it_did_not_look(blinks_ms, blamed):
    merged = together(20, 33, 33, 43, 53)
    verdict = judge(evidence([merged], facts=blinking(*blinks_ms)))
    assert bool(verdict.reasons) is blamed
    assert judge(evidence([together(20, 31, 42, 53)], facts=blinking(*blinks_ms))).reasons == ()


def test_a_late_client_says_how_often_and_for_how_long():
    merged = together(20, 33, 33, 43, 53)
    assert judge(evidence([merged], facts=blinking((31, 34), (50, 50), (60, 67)))).reasons == (
        "the load client was kept from reading (2 times, for up to 7.0 ms): "
        "25.0% of the chunks arrived together with the one before",
    )


def test_first_chunks_that_came_with_the_next_make_the_ttft_too_long():
    """However few they are among the chunks of long answers."""
    late = together(33, 33, *range(43, 2043, 10))
    fine = together(*range(20, 2030, 10))
    facts = blinking((25, 34))
    [reason] = judge(evidence([late, *[fine] * 9], facts=facts)).reasons
    assert reason.endswith(
        "the first chunk of 10.0% of the requests arrived together with the next"
    )
    assert judge(evidence([fine] * 9, facts=facts)).reasons == ()


def test_a_few_merged_chunks_move_no_percentile():
    one_of_250 = together(*(10 * n - 10 * (n == 99) for n in range(1, 252)))
    facts = blinking((970, 985))
    assert judge(evidence([one_of_250], facts=facts)).reasons == ()
    one_of_150 = together(*(10 * n - 10 * (n == 99) for n in range(1, 152)))
    assert len(judge(evidence([one_of_150], facts=facts)).reasons) == 1


def test_what_only_disturbed_the_client_may_be_tried_again():
    merged, facts = together(20, 33, 33, 43, 53), blinking((31, 34))
    assert judge(evidence([merged], facts=facts)).disturbed
    saturated = replace(facts, busy=0.97)  # it would be the same again
    assert not judge(evidence(one_after_the_other(20), facts=saturated)).disturbed
    other_length = replace(merged, requested_tokens=9)
    assert not judge(evidence([other_length], facts=facts)).disturbed
    assert not judge(evidence([merged], facts=HEALTHY)).disturbed
    dead = replace(facts, stopped="server died")
    assert not judge(evidence([merged], facts=dead)).disturbed


def test_a_clock_of_our_own_needs_a_core():
    facts = replace(HEALTHY, starved_s=0.5)
    records = one_after_the_other(4)
    assert judge(evidence(records, facts=facts)).reasons == ()
    [reason] = judge(evidence(records, facts=replace(facts, unstamped=1000))).reasons
    assert reason == (
        "the client waited 0.5 s for a core of a busy machine, "
        "and the arrivals have no time stamps of the kernel's"
    )


def test_a_short_load_may_be_all_start_up():
    assert judge(evidence([answered(0)], facts=replace(HEALTHY, busy=0.99))).reasons == ()


def test_a_stepped_clock_is_nothing_to_stamps_of_our_own():
    facts = replace(HEALTHY, clock_step_ns=3_000_000, unstamped=1000)
    assert judge(evidence(one_after_the_other(4), facts=facts)).reasons == ()


def test_grave_reasons_come_first():
    facts = replace(HEALTHY, stopped="refused", busy=0.97)
    verdict = judge(evidence(one_after_the_other(20), facts=facts, asked=30))
    assert verdict.validity is Validity.INVALID
    assert [reason.split()[0] for reason in verdict.reasons] == ["server", "the"]


def test_a_stall_is_named():
    stalled = record(9, chunks={20: 1, 30: 2, 10_030: 3, 10_040: 4}, requested_tokens=4)
    verdict = judge(evidence([*one_after_the_other(8), stalled]))
    assert verdict.validity is Validity.SUSPECT
    assert "a stream stood still for 10.0 s" in verdict.reasons


def test_a_slow_server_does_not_stall():
    assert judge(evidence([answered(0, itl_ms=3000)])).reasons == ()


def test_prompts_that_share_their_beginning_are_found_in_the_cache():
    warm = [answered(i, sent_ms=50 * i, cached_tokens=40) for i in range(8)]
    assert "prefix cache" in judge(evidence(warm)).reasons[0]
    assert judge(replace(evidence(warm), shares=True)).reasons == ()
