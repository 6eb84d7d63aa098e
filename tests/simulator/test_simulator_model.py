"""The speeds that the pretend host is known for."""

import pytest

from simulator.engine import STRATA, acceptance_deck
from simulator.flags import parse
from simulator.model import Memory, Parameters, Speed, memory_of, speed_of

CHANNELS_16 = {"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "16"}
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-eagle-topk 1"


def speed(flags: str, env: dict[str, str] | None = None) -> Speed:
    configuration = parse(f"--model-path m --tp 8 {flags}".split())
    return speed_of(configuration, CHANNELS_16 if env is None else env, Parameters())


def memory(flags: str) -> Memory:
    return memory_of(parse(f"--model-path m --tp 8 {flags}".split()), Parameters())


def steps(n: int) -> str:
    draft = f"--speculative-num-steps {n} --speculative-num-draft-tokens {n + 1}"
    return f"--cuda-graph-max-bs 128 {EAGLE3} {draft}"


def test_a_lone_request_gets_the_published_rates() -> None:
    assert speed("--cuda-graph-max-bs 128").single_stream_tokens_per_s() == pytest.approx(92.6)
    assert speed(steps(3)).single_stream_tokens_per_s() == pytest.approx(96.1, abs=0.005)


def test_three_speculative_steps_are_the_best_count_by_a_clear_margin() -> None:
    rates = {n: speed(steps(n)).single_stream_tokens_per_s() for n in range(1, 7)}
    best = max(rates, key=rates.__getitem__)
    assert best == 3
    assert all(rates[3] > 1.02 * rate for n, rate in rates.items() if n != 3)


def test_graphs_up_to_128_are_nine_percent_faster_than_the_default() -> None:
    ratio = speed("--cuda-graph-max-bs 128").single_stream_tokens_per_s()
    ratio /= speed("").single_stream_tokens_per_s()
    assert ratio == pytest.approx(1.09)


def test_the_older_stack_has_its_own_rates() -> None:
    env = CHANNELS_16 | {"SIMULATOR_STACK": "cu128"}
    plain = speed("--cuda-graph-max-bs 128", env).single_stream_tokens_per_s()
    speculative = speed(steps(3), env).single_stream_tokens_per_s()
    assert (plain, speculative) == (pytest.approx(89.5, abs=0.01), pytest.approx(54.1, abs=0.01))


@pytest.mark.parametrize("channels", [2, 4, 8, 12, 24, 32])
def test_sixteen_channels_are_best(channels: int) -> None:
    env = {"NCCL_MIN_NCHANNELS": str(channels), "NCCL_MAX_NCHANNELS": str(channels)}
    assert speed("", env).decode_s(1) > speed("").decode_s(1)


def test_channels_are_what_the_variables_leave_of_nccls_own_choice() -> None:
    own = speed("", {}).decode_s(1)
    assert speed("", {"NCCL_MIN_NCHANNELS": "8"}).decode_s(1) == own
    assert speed("", {"NCCL_MIN_NCHANNELS": "16"}).decode_s(1) == speed("").decode_s(1)
    assert speed("", {"NCCL_MAX_NCHANNELS": "4"}).decode_s(1) > own


def test_batches_beyond_the_captured_ones_run_eager() -> None:
    small, large = speed("--cuda-graph-max-bs 8"), speed("--cuda-graph-max-bs 128")
    assert small.decode_s(8) == large.decode_s(8)
    assert small.decode_s(9) == pytest.approx(large.decode_s(9) + 0.008)
    assert speed("--disable-cuda-graph").decode_s(1) == pytest.approx(large.decode_s(1) + 0.008)


def test_a_larger_batch_takes_longer_but_yields_more() -> None:
    one = speed("--cuda-graph-max-bs 128")
    times = [one.decode_s(batch) for batch in (1, 8, 64)]
    assert times == sorted(times)
    assert 64 / times[2] > 8 / times[1] > 1 / times[0]


def test_speculation_loses_at_high_concurrency() -> None:
    plain, draft = speed("--cuda-graph-max-bs 128"), speed(steps(3))
    assert draft.accept_length * 48 / draft.decode_s(48) < 48 / plain.decode_s(48)


def test_graphs_take_memory_from_the_kv_cache() -> None:
    tokens = [memory(f"--cuda-graph-max-bs {n}").max_total_num_tokens for n in (8, 128, 256, 512)]
    assert tokens == sorted(tokens, reverse=True)
    assert memory("").max_total_num_tokens == tokens[-1]
    assert memory("--cuda-graph-max-bs 1024").max_total_num_tokens == 0


def test_a_memory_fraction_that_leaves_graphs_no_room_does_not_fit() -> None:
    assert memory("--cuda-graph-max-bs 128").graphs_fit
    assert not memory("--cuda-graph-max-bs 128 --mem-fraction-static 0.95").graphs_fit


def test_speculation_caps_the_running_batch_as_sglang_does() -> None:
    assert memory(steps(3)).max_running_requests == 48
    assert memory("--max-running-requests 7").max_running_requests == 7


@pytest.mark.parametrize(("acceptance", "steps"), [(0.7, 3), (0.7, 1), (0.45, 5)])
def test_the_deck_of_acceptances_has_the_exact_mean(acceptance: float, steps: int) -> None:
    deck = acceptance_deck(acceptance, steps)
    mean = sum(acceptance**k for k in range(steps + 1))
    assert len(deck) == STRATA
    assert set(deck) == set(range(1, steps + 2))
    assert sum(deck) / len(deck) == pytest.approx(mean, abs=steps / STRATA)
    assert sum(deck[:200]) / 200 == pytest.approx(mean, rel=0.02)
