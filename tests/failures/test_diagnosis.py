"""What decides between cause and echo, and what a log's odd forms must not change."""

import pytest

from tasks.domain.diagnosis import Action, Phase
from tasks.failures.diagnosis import diagnose, diagnose_lines, diagnosis_of

SIGQUIT = "[2026-01-05 11:02:34] Received sigquit from a child process. It usually means"
READY = "[2026-01-05 11:02:40] The server is fired up and ready to roll!"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def mode(log: str, exit_code: int | None = None, phase: Phase | None = None, **more: bool):
    diagnosis = diagnose(log, exit_code, phase, **more)
    return diagnosis and diagnosis.mode


def hit(rank: int, second: int, error: str) -> str:
    at = f"[2026-01-05 11:02:{second:02d} TP{rank}]"
    return f"{at} Scheduler hit an exception: Traceback (most recent call last):\n{error}\n"


def test_the_earliest_exception_in_time_wins_wherever_it_stands():
    late = hit(3, 40, "RuntimeError: CUDA error: no kernel image is available for execution")
    early = hit(0, 33, "RuntimeError: Cannot find any model weights with `/models/x`")
    assert mode(late + early + SIGQUIT) == "weights-missing"


def test_without_times_the_first_line_wins():
    one = "RuntimeError: Cannot find any model weights with `/models/x`\n"
    assert mode(one + "RuntimeError: no kernel image is available\n") == "weights-missing"


def test_a_cause_wins_over_an_earlier_symptom():
    symptom = "[rank1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n"
    cause = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus\n"
    assert mode(symptom + cause) == "gpu-hardware-fault"


def test_an_echo_alone_is_no_cause():
    assert mode(SIGQUIT) == "scheduler-child-died"


def test_an_unexplained_exception_before_an_echo_is_unknown():
    diagnosis = diagnose(hit(0, 33, "TypeError: forward() missing 1 argument") + SIGQUIT, 1)
    assert diagnosis is not None
    assert (diagnosis.mode, diagnosis.action) == ("unknown", Action.PRUNE)
    assert "TypeError: forward()" in diagnosis.explanation
    assert any("TypeError" in evidence.text for evidence in diagnosis.evidence)


@pytest.mark.parametrize(
    ("exit_code", "expected"),
    [
        (None, None),
        (0, None),
        (-15, None),
        (143, None),
        (1, "unknown"),
        (-9, "scheduler-died-silently"),
        (137, "scheduler-died-silently"),
        (-11, "scheduler-died-silently"),
        (-8, "dual-cuda-runtime"),
        (-7, "shm-too-small"),
    ],
)
def test_the_exit_code_decides_only_where_the_log_says_nothing(exit_code, expected):
    assert mode(f"all well\n{READY}\n", exit_code) == expected
    assert mode(f"{OOM}\n", exit_code, Phase.WEIGHTS) == "oom-weight-load"


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.START, "startup-timeout-slow-import"),
        (Phase.DISTRIBUTED, "hang-nccl-init"),
        (Phase.WEIGHTS, "unknown"),
        (Phase.GRAPH_CAPTURE, "startup-timeout-slow-jit"),
        (Phase.SERVING, "scheduler-died-silently"),
    ],
)
def test_a_stalled_launch_is_named_by_its_phase(phase, expected):
    assert mode("nothing to see\n", None, phase, stalled=True) == expected


def test_a_log_that_breaks_off_while_the_ranks_join_is_a_hang():
    assert mode("[2026-01-05 11:02:33 TP0] Init torch distributed begin.\n") == "hang-nccl-init"
    ended = "[2026-01-05 11:02:33 TP0] Init torch distributed begin.\n" + READY
    assert mode(ended) is None


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.WEIGHTS, "oom-weight-load"),
        (Phase.KV_CACHE, "oom-kv-cache"),
        (Phase.GRAPH_CAPTURE, "oom-cuda-graph-capture"),
        (Phase.SERVING, "oom-serving"),
    ],
)
def test_the_callers_phase_tells_one_lack_of_memory_from_another(phase, expected):
    diagnosis = diagnose(OOM, 1, phase)
    assert diagnosis is not None
    assert (diagnosis.mode, diagnosis.phase) == (expected, phase)


def test_the_phase_is_read_from_the_log_where_nobody_gives_it():
    log = "[2026-01-05 11:02:33 TP0] Load weight begin. avail mem=78.38 GB\n" + OOM
    diagnosis = diagnose(log, None)
    assert diagnosis is not None
    assert diagnosis.phase is Phase.WEIGHTS


def test_the_last_launch_in_a_log_counts():
    first = "server_args=ServerArgs(model_path='m')\n" + OOM + "\n"
    second = "server_args=ServerArgs(model_path='m')\n" + READY + "\n"
    assert mode(first) is not None
    assert mode(first + second) is None


def test_a_warning_that_came_true_not_is_none():
    warning = "NVIDIA T400 with CUDA capability sm_75 is not compatible with the current PyTorch\n"
    assert mode(warning) == "torch-build-lacks-arch"
    assert mode(warning + READY) is None


def test_an_exception_of_a_request_leaves_a_healthy_server_healthy():
    error = "Traceback (most recent call last):\nValueError: Input length exceeds the limit.\n"
    served = '[2026-01-05 11:02:41] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK\n'
    assert mode(READY + "\n" + error + served) is None


def test_colours_progress_bars_and_prefixes_hide_nothing():
    line = "RuntimeError: \x1b[91mNot enough memory. Please try to increase --mem-fraction-static."
    assert mode(f"(Engine pid=7) {line}\x1b[0m\n") == "kv-alloc-not-enough-memory"
    assert mode(f" 12%|#   |\r 40%|####  |\r{line}\n") == "kv-alloc-not-enough-memory"
    assert mode("\ufffd\ufffd " + line) == "kv-alloc-not-enough-memory"


def test_a_line_that_a_terminal_broke_is_joined():
    text = (
        "(SGLangEngine pid=23901) RuntimeError: Not enough memory. Please try to increase --mem\n"
        "-fraction-static. Current value: mem_fraction_static=0.8\n"
    )
    assert mode(text) == "kv-alloc-not-enough-memory"


def test_interleaved_ranks_keep_what_belongs_together():
    frames = [f'  File "loader.py", line {number}, in load_model' for number in range(200)]
    lines = ["[2026-01-05 11:02:33 TP0] Capture cuda graph begin.", *frames, OOM, *frames]
    tail = "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert mode("\n".join([*lines, tail])) == "oom-cuda-graph-capture"


def test_what_surrounds_a_line_is_seen_across_pieces():
    filler = [f"[2026-01-05 11:02:33 TP0] line {number}" for number in range(20_000)]
    headline = "RuntimeError: CRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected"
    offer = "Or you can disable this check by setting env var SGLANG_DISABLE_CUDNN_CHECK=1"
    for position in (8191, 8192, 16_383):
        lines = [*filler[:position], headline, *filler[:30], offer, *filler[position:]]
        diagnosis = diagnose_lines(iter(lines), None)
        assert diagnosis is not None
        assert diagnosis.mode == "cudnn-conv3d-check"
        assert [evidence.line for evidence in diagnosis.evidence] == [position + 1, position + 32]


def test_thousands_of_one_line_are_read_once():
    line = "x.cu:1500: f: block: [32,0,0], thread: [63,0,0] Assertion `srcIndex < n` failed.\n"
    assert mode(line * 50_000) == "device-side-assert"


def test_a_handled_exception_doesnt_hide_a_hang():
    log = "Traceback (most recent call last):\nKeyError: 'x'\nInit torch distributed begin.\n"
    assert mode(log, None, Phase.DISTRIBUTED, stalled=True) == "hang-nccl-init"


def test_a_mode_that_was_seen_without_a_log():
    diagnosis = diagnosis_of("port-in-use-http", Phase.WARMUP)
    assert diagnosis.action is Action.RETRY
    assert diagnosis.remedy is not None
    assert diagnosis.remedy.another_port


def test_an_empty_log():
    assert diagnose("", None) is None
    assert mode("", 1) == "unknown"
    assert diagnose_lines(iter(()), None) is None


@pytest.mark.parametrize(
    ("log", "field", "expected"),
    [
        (
            "sglang serve: error: ambiguous option: --cuda-graph-max-bs could match"
            " --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill",
            "rename_args",
            {"cuda_graph_max_bs": "cuda_graph_max_bs_decode"},
        ),
        (
            "ValueError: Removed server argument(s): warmup -> warmup_mode=request",
            "args",
            {"warmup": None, "warmup_mode": "request"},
        ),
        (
            "launch_server.py: error: unrecognized arguments: --mem_fraction_static 0.8",
            "args",
            {"mem_fraction_static": "0.8"},
        ),
        (
            "/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found",
            "env",
            {"CUDA_HOME": "/usr/local/cuda-12.8"},
        ),
        (
            '  File "/opt/venv/lib/python3.12/site-packages/sglang/x.py", line 1\n'
            "ImportError: libnvrtc.so.12: cannot open shared object file: No such file",
            "env",
            {"LD_LIBRARY_PATH": "/opt/venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib"},
        ),
        (
            "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
            "env",
            {
                "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas",
                "TRITON_PTXAS_BLACKWELL_PATH": "/usr/local/cuda/bin/ptxas",
            },
        ),
        (
            "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use"
            " `--attention-backend flashinfer`.",
            "args",
            {"attention_backend": "flashinfer"},
        ),
        (
            "[TP4] Capture cuda graph end. Time elapsed: 13.38 s\n[TP4] Init torch distributed"
            " begin.\nValueError: The memory capacity is unbalanced. Some GPUs may be occupied",
            "env",
            {"SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1"},
        ),
        (
            "[TP4] Capture cuda graph end. Time elapsed: 13.38 s\n[TP4] Init torch distributed"
            " begin.\nRuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied",
            "env",
            {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"},
        ),
    ],
)
def test_a_remedy_is_filled_with_what_the_log_says(log, field, expected):
    diagnosis = diagnose(log, None)
    assert diagnosis is not None
    assert diagnosis.remedy is not None
    assert dict(getattr(diagnosis.remedy, field)) == expected


def test_torchs_account_tells_a_stranger_from_the_server_itself():
    alone = f"{OOM} Process 88 has 23.43 GiB memory in use. Of the allocated memory 23.02 GiB is"
    alone += " allocated by PyTorch, and 0.10 GiB is reserved by PyTorch but unallocated."
    assert mode(alone, None, Phase.WEIGHTS) == "oom-weight-load"
    both = alone.replace("Of the allocated", "Process 99 has 50.10 GiB memory in use. Of the")
    assert mode(both, None, Phase.WEIGHTS) == "stale-processes"
