import pytest

from tasks.failures.fatal import fatal_line


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-05 11:02:34] Received sigquit from a child process. It usually means the child",
        "[2025-02-18 14:31:01] Received sigquit from a child proces. It usually means the child",
        "[2026-01-05 11:02:34] SIGQUIT received. signum=3, frame=<frame at 0x7f>. It usually means",
        "[2026-01-05 11:02:33 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        "launch_server.py: error: unrecognized arguments: --foo",
        "sglang serve: error: ambiguous option: --a could match --ab, --ac",
        "sglang serve: error: argument --attention-backend: invalid choice: 'x'",
        "[12-16 14:27:08] Rank 0 scheduler is dead. Please check if there are relevant logs.",
        "RuntimeError: Rank 5 scheduler died during initialization (exit code: -9).",
        "Subprocess scheduler_0 (pid=4211) crashed with exit code -8. Triggering SIGQUIT",
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30201)",
        "[2026-01-16 13:35:35] Initialization failed. warmup error: Traceback (most recent call",
        "\x1b[91mterminate called after throwing an instance of 'c10::DistBackendError'\x1b[0m",
    ],
)
def test_a_launch_that_wrote_this_is_lost(line: str):
    assert fatal_line(line)


@pytest.mark.parametrize(
    "line",
    [
        "Ignore import error when loading sglang.srt.models.grok: no attribute 'x'",
        'loc("/x.py":310:16): error: operation scheduled before its operands',
        "E0000 cuda_dnn.cc:8310] Unable to register cuDNN factory",
        "[TP0] Receive: obj=GenerateReqInput(text='Scheduler hit an exception')",
        "requests died down",
        "",
    ],
)
def test_a_launch_that_wrote_this_may_live(line: str):
    assert not fatal_line(line)
