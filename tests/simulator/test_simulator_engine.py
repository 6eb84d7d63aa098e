"""Continuous batching and the prefix cache, in virtual time."""

from simulator.engine import Engine, Request
from simulator.flags import parse
from simulator.model import Parameters, memory_of, speed_of
from simulator.prefix_cache import PrefixCache


def engine(flags: str = "") -> Engine:
    configuration = parse(f"--model-path m --tp 8 {flags}".split())
    parameters = Parameters()
    return Engine(
        speed_of(configuration, {}, parameters),
        memory_of(configuration, parameters),
        chunk=configuration.chunked_prefill_size,
    )


def prompt(number: int, length: int = 10) -> tuple[int, ...]:
    return (-1 - number, *range(length - 1))


def run(subject: Engine, now_s: float = 0.0) -> list[tuple[float, int, int]]:
    """Run until idle; return (time, request, tokens) of all that came out."""
    out = []
    while step := subject.step(now_s):
        now_s = step.end_s
        out += [(now_s, request.number, count) for request, count in subject.finish(step)]
    return out


def test_the_first_token_comes_with_the_prefill_and_the_others_one_a_step() -> None:
    subject = engine()
    subject.submit(Request(1, prompt(1, 100), 3), 0.0)
    out = run(subject)
    prefill_s, decode_s = subject.speed.prefill_s(100), subject.speed.decode_s(1)
    assert [count for _, _, count in out] == [1, 1, 1]
    assert [at for at, _, _ in out] == [prefill_s, prefill_s + decode_s, prefill_s + 2 * decode_s]
    assert subject.idle


def test_waiting_requests_are_prefilled_before_anything_is_decoded() -> None:
    subject = engine()
    subject.submit(Request(1, prompt(1), 5), 0.0)
    first = subject.step(0.0)
    assert first
    subject.finish(first)
    subject.submit(Request(2, prompt(2), 5), first.end_s)
    second = subject.step(first.end_s)
    assert second
    assert [request.number for request in second.prefill] == [2]


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    subject = engine("--chunked-prefill-size 100")
    subject.submit(Request(1, prompt(1, 250), 2), 0.0)
    out = run(subject)
    speed = subject.speed
    assert out[0][0] == 2 * speed.prefill_s(100) + speed.prefill_s(50)


def test_memory_caps_the_running_batch() -> None:
    subject = engine("--max-total-tokens 1000")
    for number in range(5):
        subject.submit(Request(number, prompt(number, 200), 200), 0.0)
    step = subject.step(0.0)
    assert step
    assert len(step.prefill) == 2
    out = run(subject, step.end_s)
    assert {number for _, number, _ in out} >= {2, 3, 4}
    assert subject.reserved_tokens == 0


def test_a_request_larger_than_memory_runs_alone() -> None:
    subject = engine("--max-total-tokens 100")
    subject.submit(Request(1, prompt(1, 200), 2), 0.0)
    assert len(run(subject)) == 2


def test_speculation_never_gives_more_than_was_asked_for() -> None:
    subject = engine("--speculative-algorithm EAGLE3 --speculative-num-steps 3")
    subject.submit(Request(1, prompt(1), 50), 0.0)
    out = run(subject)
    assert sum(count for _, _, count in out) == 50
    assert max(count for _, _, count in out) == 4
    assert 2.2 < subject.counters.accept_length < 2.9


def test_an_aborted_request_frees_its_place_and_stays_silent() -> None:
    subject = engine()
    kept, gone = Request(1, prompt(1), 4), Request(2, prompt(2), 4)
    subject.submit(kept, 0.0)
    subject.submit(gone, 0.0)
    step = subject.step(0.0)
    assert step
    subject.abort(gone)
    assert {number for _, number, _ in [(0, r.number, c) for r, c in subject.finish(step)]} == {1}
    run(subject, step.end_s)
    assert subject.reserved_tokens == 0
    waiting = Request(3, prompt(3), 4)
    subject.submit(waiting, 9.0)
    subject.abort(waiting)
    assert subject.idle


def test_a_prompt_seen_before_is_computed_from_where_it_differs() -> None:
    subject = engine()
    for number in (1, 2):
        subject.submit(Request(number, (*range(90), -number), 1), 0.0)
        run(subject)
    assert subject.counters.cached_tokens == 90
    assert subject.flush()
    again = Request(3, (*range(90), -1), 1)
    subject.submit(again, 0.0)
    run(subject)
    assert again.cached == 0


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    subject = engine()
    for number in (1, 2):
        request = Request(number, tuple(range(50)), 1)
        subject.submit(request, 0.0)
        run(subject)
    assert request.cached == 49


def test_nothing_is_flushed_while_requests_run() -> None:
    subject = engine()
    subject.submit(Request(1, prompt(1), 2), 0.0)
    assert not subject.flush()


def test_the_cache_shares_beginnings_and_forgets_the_least_recently_used() -> None:
    cache = PrefixCache()
    cache.insert((1, 2, 3, 4))
    cache.insert((1, 2, 5, 6))
    assert cache.size == 6
    assert cache.match((1, 2, 3, 9)) == 3
    assert cache.match((7,)) == 0
    cache.match((1, 2, 5, 6))
    cache.trim(5)
    assert cache.match((1, 2, 5, 6)) == 4
    assert cache.match((1, 2, 3, 4)) < 4
    cache.clear()
    assert (cache.size, cache.match((1, 2))) == (0, 0)


def test_an_empty_sequence_is_no_entry() -> None:
    cache = PrefixCache()
    cache.insert(())
    assert (cache.size, cache.match(())) == (0, 0)
