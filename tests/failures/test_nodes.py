"""Of a server's nodes, the one that failed first is to blame, not those that heard of it."""

from collections.abc import Sequence

import pytest

from tasks.domain.diagnosis import NodeEnd, Phase
from tasks.failures.nodes import blame

OOM = """[2026-11-30 10:00:05 TP7] Scheduler hit an exception: Traceback (most recent call last):
  File "model_runner.py", line 5, in load_model
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[2026-11-30 10:00:05] Received sigquit from a child process. It usually means the child failed.
"""
PEER_GONE = """[2026-11-30 10:00:04 TP0] Scheduler hit an exception: Traceback (most recent call \
last):
  File "common.py", line 1310, in broadcast_pyobj
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer \
[10.0.0.2]:28851
[2026-11-30 10:00:04] Received sigquit from a child process. It usually means the child failed.
"""
WAITS = "[2026-11-30 10:00:01 TP0] Init torch distributed begin.\n"
SERVES = "[2026-11-30 10:00:01] The server is fired up and ready to roll!\n"
MISSING = "[2026-11-30 {at}] OSError: Can't load the configuration of '/models/x'.\n"


def told(ends: Sequence[NodeEnd]) -> tuple[int, str | None]:
    rank, diagnosis = blame(ends)
    return rank, diagnosis and diagnosis.mode


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([NodeEnd(PEER_GONE, -9), NodeEnd(OOM, -9)], (1, "oom-weight-load")),
        ([NodeEnd(OOM, -9), NodeEnd(PEER_GONE, -9)], (0, "oom-weight-load")),
        (
            [NodeEnd(PEER_GONE, -9), NodeEnd(SERVES, -9, Phase.SERVING)],
            (1, "scheduler-died-silently"),
        ),
        (
            [NodeEnd(SERVES, None, Phase.SERVING), NodeEnd(OOM, -9, Phase.SERVING)],
            (1, "oom-serving"),
        ),
        (
            [NodeEnd(MISSING.format(at=at), 1) for at in ("10:00:09", "10:00:02", "10:00:03")],
            (1, "model-path-missing"),
        ),
        ([NodeEnd(WAITS, None, Phase.DISTRIBUTED, stalled=True)] * 2, (0, "hang-nccl-init")),
        (
            [NodeEnd(SERVES, None, Phase.SERVING), NodeEnd(PEER_GONE, -9, Phase.SERVING)],
            (1, "scheduler-child-died"),
        ),
        ([NodeEnd(SERVES, 0, Phase.SERVING)], (0, None)),
    ],
    ids=[
        "second",
        "first",
        "silent",
        "under-load",
        "earliest",
        "all-hang",
        "echo-alone",
        "healthy",
    ],
)
def test_who_is_to_blame(ends: list[NodeEnd], expected: tuple[int, str | None]):
    assert told(ends) == expected


def test_an_exception_that_nobody_knows_comes_after_a_cause_that_is_known():
    ends = [NodeEnd("ValueError: no such thing\n", 1), NodeEnd(OOM, -9)]
    assert told(ends) == (1, "oom-weight-load")
