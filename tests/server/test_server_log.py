"""Following a log: recorded ones of the real SGLang, in whatever pieces they arrive."""

import random
from pathlib import Path

import pytest

from tasks.domain.diagnosis import Phase
from tasks.server.log import LogState, follow

LOGS = Path(__file__).parents[1] / "failures" / "data" / "logs"
READ = {
    "healthy.sglang-0.5.23-stopped-while-streaming.log": (Phase.STOPPING, True),
    "healthy.sglang-0.5.9-stopped-when-idle.log": (Phase.STOPPING, False),
    "port-in-use-http.sglang-0.5.9.log": (Phase.SERVING, True),
    "kv-alloc-not-enough-memory.sglang-0.5.9.log": (Phase.WEIGHTS, False),
    "spec-kernel-missing.sglang-0.5.23.log": (Phase.WEIGHTS, False),
    "flag-unknown.sglang-0.5.9.log": (Phase.START, False),
}


def fed(pieces: list[bytes]) -> tuple[LogState, list[str]]:
    state, lines = LogState(), []
    for piece in pieces:
        state, whole = follow(state, piece)
        lines += whole
    return state, lines


def in_pieces(data: bytes, seed: int, pieces: int) -> list[bytes]:
    cuts = sorted(random.Random(seed).randrange(len(data) + 1) for _ in range(pieces))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("name", READ)
def test_what_a_real_log_says_whatever_its_pieces(name: str):
    data = (LOGS / name).read_bytes()
    state, lines = fed([data])
    assert (state.phase, state.ready) == READ[name]
    for seed in range(20):
        assert fed(in_pieces(data, seed, 1 + 40 * seed)) == (state, lines)
    if name.startswith("healthy"):
        assert fed([data[n : n + 1] for n in range(len(data))]) == (state, lines)


def test_the_phases_of_a_real_launch_in_their_order():
    data = (LOGS / "healthy.sglang-0.5.23-stopped-while-streaming.log").read_bytes()
    state, seen = LogState(), [Phase.START]
    for line in data.splitlines(keepends=True):
        state, _ = follow(state, line)
        if state.phase is not seen[-1]:
            seen.append(state.phase)
    assert seen == [
        Phase.START, Phase.DISTRIBUTED, Phase.WEIGHTS, Phase.KV_CACHE, Phase.WARMUP,
        Phase.SERVING, Phase.STOPPING,
    ]  # fmt: skip


def test_progress_within_a_phase():
    state, _ = follow(LogState(), b"[x] Load weight begin. avail mem=20.20 GB\n")
    assert (state.phase, state.fraction, state.detail) == (Phase.WEIGHTS, None, "")
    bar = "Loading safetensors checkpoint shards:  {}% Completed | {}/64 [00:01<00:03, 9.5it/s]\r"
    state, _ = follow(state, bar.format(25, 16).encode())
    assert (state.fraction, state.detail) == (0.25, "weights 16/64")
    state, _ = follow(state, b"\x1b[32m[x] Capture cuda graph begin. This can take\x1b[0m\n")
    assert (state.phase, state.fraction, state.detail) == (Phase.GRAPH_CAPTURE, None, "")
    capture = "\rCapturing batches (bs=96 avail_mem=9.02 GB):  50%|█████     | 18/36 [00:01<00:01]"
    state, _ = follow(state, f"{capture}\n".encode())
    assert (state.fraction, state.detail) == (0.5, "capturing graphs 18/36")


def test_a_phase_never_goes_back():
    state, _ = fed(
        [b"Uvicorn running on\n", b"Load weight begin\n", b"Init torch distributed begin"]
    )
    assert state.phase is Phase.WARMUP


def test_a_line_counts_when_it_is_whole_and_never_twice():
    state, lines = follow(LogState(), b"\n\nThe server is fired up and ready to ro")
    assert (lines, state.ready) == ([], False)
    state, lines = follow(state, "ll!\r\n\xfcber\n".encode("latin-1"))
    assert lines == ["The server is fired up and ready to roll!", "\ufffdber"]
    assert (state.ready, state.rest) == (True, b"")
    assert follow(state, b"") == (state, [])
