"""A whole level, against a real server and through real processes."""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from settings.workload import Workload
from tasks.domain.measurement import RequestOutcome, Validity
from tasks.load.run import LoadProgress, bench, run_level
from tasks.load.target import Level, Target
from tests.load.streaming_server import Behaviour, StreamingServer


def workload(**changes) -> Workload:
    usual = {"name": "w", "input_len": 16, "output_len": 8, "concurrency": [4], "requests": 12}
    return Workload(**{**usual, **changes})


async def level_of(
    behaviour: Behaviour, level=None, backend="sglang", what=None, seed=1, repeat=0, **how
):
    level = level or Level(concurrency=4)
    async with StreamingServer(behaviour) as server:
        target = Target(server.url, backend, **how.pop("target", {}))
        what = what or workload()
        result = await run_level(target, what, level, seed=seed, repeat=repeat, **how)
        return result, server


def processes_of_the_load() -> list[int]:
    """The capture processes that are alive and ours."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in map(int, children) if b"capture.program" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


OF_A_BUSY_MACHINE = ("client", "in flight on average")
"""Reasons that a machine which runs more than these tests may give rightly."""


def flawless(result) -> bool:
    """Whether nothing is said against a run but that this machine is busy."""
    reasons = result.verdict.reasons
    return all(any(word in reason for word in OF_A_BUSY_MACHINE) for reason in reasons)


@pytest.mark.parametrize("backend", ["sglang", "openai", "openai-chat"])
async def test_a_level(backend):
    result, server = await level_of(Behaviour(), backend=backend)
    assert flawless(result)
    assert (result.workload, result.level, result.repeat) == ("w", "c4", 0)
    measured = [record for record in result.records if not record.warmup]
    assert [record.index for record in measured] == list(range(12))
    assert {record.outcome for record in measured} == {RequestOutcome.FINISHED}
    assert {record.cumulative_tokens[-1] for record in measured} == {8}
    assert all(tuple(record.cumulative_tokens) == tuple(range(1, 9)) for record in measured)
    assert result.metrics["completed"] == 12
    assert result.metrics["total_output_tokens"] == 96
    assert result.metrics["total_input_tokens"] == 84
    assert result.metrics["max_concurrent_requests"] == 4
    assert server.flushes == 1


async def test_the_times_are_the_servers_own():
    result, server = await level_of(Behaviour(itl_s=0.004), Level(concurrency=1))
    for record, generation in zip(result.records, server.generations, strict=True):
        # Nothing is seen before it happens. How long after is a matter of the machine, and so of
        # the benchmark, not of a test.
        assert record.sent_ns < generation.read_ns
        pairs = zip(generation.chunk_ns, record.arrival_ns, strict=True)
        assert all(sent < arrived for sent, arrived in pairs)


async def test_the_client_tells_of_itself():
    result, _ = await level_of(Behaviour())
    client = result.client
    assert client["processes"] == 1
    assert client["timestamps"] == "kernel"
    assert client["cpu_s"] >= client["parse_cpu_s"] > 0
    assert client["send_late_p99_ms"] >= 0
    assert client["read_lag_p99_ms"] > 0
    assert client["cache_flushed"] == 1


async def test_a_client_that_has_no_core_says_so():
    """However steady the server: chunks that arrive meanwhile are one arrival to it."""

    async def take_its_core() -> None:
        while True:
            await asyncio.sleep(0.15)
            for signal_number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in processes_of_the_load():
                    os.kill(pid, signal_number)
                await asyncio.sleep(0.04)

    thief = asyncio.create_task(take_its_core())
    try:
        what = workload(output_len=100, requests=4)
        result, _ = await level_of(Behaviour(itl_s=0.01), what=what)
    finally:
        thief.cancel()
    assert result.verdict.validity is Validity.SUSPECT
    assert any(
        "the load client was kept from reading" in reason for reason in result.verdict.reasons
    )


async def test_warm_up_requests_come_first_and_do_not_count():
    result, server = await level_of(Behaviour(), what=workload(warmup_requests=3))
    assert [record.warmup for record in result.records] == [True] * 3 + [False] * 12
    assert len(server.generations) == 15
    assert result.metrics["completed"] == 12
    result, server = await level_of(Behaviour(), what=workload(warmup_requests=0))
    assert len(server.generations) == len(result.records) == 12


async def test_the_same_seed_asks_the_same_and_another_repeat_does_not():
    async def prompts(**how):
        _, server = await level_of(Behaviour(), Level(concurrency=1), **how)
        return [tuple(g.body["input_ids"]) for g in server.generations][1:]

    first = await prompts()
    assert first == await prompts()
    assert not set(first) & set(await prompts(repeat=1))
    assert not set(first) & set(await prompts(seed=2))


async def test_an_open_loop():
    result, _ = await level_of(Behaviour(ttft_s=0.05), Level(request_rate=200.0))
    assert (result.level, result.concurrency) == ("200/s", None)
    assert result.metrics["completed"] == 12
    measured = [record for record in result.records if not record.warmup]
    assert all(record.sent_ns >= record.intended_ns for record in measured)
    assert result.metrics["max_concurrent_requests"] > 1


async def test_several_processes_share_the_load():
    result, server = await level_of(Behaviour(ttft_s=0.03), processes=3)
    assert result.client["processes"] == 3
    assert result.metrics["completed"] == 12
    assert result.metrics["max_concurrent_requests"] == 4
    assert len({g.connection for g in server.generations[1:]}) == 4


async def test_chunks_of_several_tokens():
    behaviour = Behaviour(tokens_per_chunk=3, itl_s=0.004, verify_ct=True)
    result, _ = await level_of(behaviour, what=workload(output_len=10))
    assert tuple(result.records[-1].cumulative_tokens) == (1, 4, 7, 10)
    assert result.metrics["accept_length"] == pytest.approx(10 / 4)
    assert result.metrics["total_output_tokens"] == 120


async def test_openai_counts_tokens_exactly_where_the_server_tells():
    behaviour = Behaviour(tokens_per_chunk=3, continuous_usage=True)
    result, _ = await level_of(behaviour, backend="openai", what=workload(output_len=10))
    assert tuple(result.records[-1].cumulative_tokens) == (1, 4, 7, 10)


async def test_the_servers_accept_length_counts_only_since_a_flush():
    result, _ = await level_of(Behaviour(avg_accept_length=2.5))
    assert result.metrics["accept_length"] == 2.5
    result, _ = await level_of(Behaviour(avg_accept_length=2.5, flush_status=404))
    assert "accept_length" not in result.metrics
    assert result.client["cache_flushed"] == 0
    assert flawless(result)


@pytest.mark.parametrize(
    ("fault", "outcome", "error"),
    [
        ("500", RequestOutcome.HTTP_ERROR, "HTTP 500: CUDA out of memory"),
        ("400", RequestOutcome.HTTP_ERROR, "HTTP 400: the prompt is too long"),
        ("error event", RequestOutcome.HTTP_ERROR, "in the stream: input is too long"),
        ("cut", RequestOutcome.CUT, "after 4 tokens: the server closed the connection"),
        # The kernel throws away what a reset finds unread.
        ("reset", RequestOutcome.CUT, "after [0-4] tokens: Connection reset by peer"),
        ("unfinished", RequestOutcome.CUT, "the stream ended without a finish reason"),
        ("malformed", RequestOutcome.MALFORMED, "not JSON: b'{not json'"),
        ("not http", RequestOutcome.MALFORMED, "not HTTP"),
        ("whole", RequestOutcome.MALFORMED, "answered in one piece"),
        ("stall", RequestOutcome.TIMEOUT, "no end after 0.4 s"),
    ],
)
async def test_each_fault_is_counted_under_its_class(fault, outcome, error):
    behaviour = Behaviour(faults={5: fault})
    result, _ = await level_of(behaviour, what=workload(request_timeout=0.4))
    (bad,) = [r for r in result.records if r.outcome is not RequestOutcome.FINISHED]
    assert bad.outcome is outcome
    assert re.search(error, bad.error)
    assert (result.metrics["completed"], result.metrics["failed"]) == (11, 1)
    assert result.verdict.validity is Validity.SUSPECT
    assert result.verdict.reasons[0].startswith(f"1 of 12 requests failed (1 {outcome.value})")


async def test_other_lengths_than_asked_for_are_told():
    result, _ = await level_of(Behaviour(fewer_tokens=2))
    assert result.verdict.validity is Validity.SUSPECT
    assert "6 tokens instead of 8" in result.verdict.reasons[0]


async def test_nobody_there():
    async with StreamingServer() as server:
        url = server.url
    result = await run_level(Target(url), workload(), Level(concurrency=4), seed=1, repeat=0)
    assert result.verdict.validity is Validity.INVALID
    assert result.verdict.reasons[:2] == (
        f"no request finished, of {len(result.records) - 1} sent",
        "the server can't be reached: Connection refused",
    )
    assert result.metrics["completed"] == 0


async def test_a_name_that_does_not_resolve():
    target = Target("http://no-such-host.invalid:1")
    result = await run_level(target, workload(), Level(concurrency=4), seed=1, repeat=0)
    assert result.verdict.validity is Validity.INVALID
    assert result.verdict.reasons[1].startswith("the server can't be reached: ")
    assert {record.outcome for record in result.records} == {RequestOutcome.REFUSED}


async def test_a_server_that_dies_under_the_load():
    async with StreamingServer(Behaviour(ttft_s=0.02, itl_s=0.01)) as server:
        running = asyncio.create_task(
            run_level(
                Target(server.url),
                workload(requests=400),
                Level(concurrency=4),
                seed=1,
                repeat=0,
            )
        )
        await server.until(10)
        await server.die()
        result = await asyncio.wait_for(running, 10)
    assert result.verdict.validity is Validity.INVALID
    finished = result.metrics["completed"]
    assert result.verdict.reasons[0] == f"server died after {finished} of 400 requests"


async def test_a_server_that_is_said_to_be_dead():
    async def is_alive() -> bool:
        return False

    behaviour = Behaviour(faults=dict.fromkeys(range(1, 99), "stall"))
    result, _ = await level_of(behaviour, is_alive=is_alive)
    assert result.verdict.validity is Validity.INVALID
    assert "server died after 0 of 12 requests" in result.verdict.reasons
    assert {r.outcome for r in result.records[1:]} == {RequestOutcome.ABANDONED}


async def test_a_stop_keeps_what_was_measured():
    stop = asyncio.Event()
    behaviour = Behaviour(faults=dict.fromkeys(range(6, 99), "stall"))
    async with StreamingServer(behaviour) as server:
        running = asyncio.create_task(
            run_level(
                Target(server.url),
                workload(),
                Level(concurrency=4),
                seed=1,
                repeat=0,
                stop=stop,
            )
        )
        await server.until(10)
        stop.set()
        result = await asyncio.wait_for(running, 10)
    assert result.verdict.validity is Validity.SUSPECT
    assert result.verdict.reasons[0] == "stopped (interrupted) after 5 of 12 requests"
    assert result.metrics["completed"] == 5


@pytest.mark.parametrize("generations", [1, 3])
async def test_a_cancellation_leaves_no_process_behind(generations):
    """Cancelled in the warm-up (one generation) and in the load itself."""
    behaviour = Behaviour(faults=dict.fromkeys(range(generations - 1, 99), "stall"))
    async with StreamingServer(behaviour) as server:
        running = asyncio.create_task(
            run_level(Target(server.url), workload(), Level(concurrency=4), seed=1, repeat=0)
        )
        await server.until(generations)
        assert processes_of_the_load()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 5)
    assert not processes_of_the_load()


async def test_progress_is_told_and_ends_with_everything():
    seen: list[LoadProgress] = []
    behaviour = Behaviour(ttft_s=0.2, itl_s=0.01)
    result, _ = await level_of(behaviour, on_progress=seen.append)
    assert len(seen) >= 2
    assert [p.requests_done for p in seen] == sorted(p.requests_done for p in seen)
    assert (seen[-1].requests_done, seen[-1].requests, seen[-1].failed) == (12, 12, 0)
    assert seen[-1].tokens_per_s == pytest.approx(result.metrics["output_throughput"])


async def test_a_listener_that_fails_ends_the_load():
    def fail(_: LoadProgress) -> None:
        raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="the terminal is gone"):
        await level_of(Behaviour(ttft_s=2.0), on_progress=fail)
    assert not processes_of_the_load()


async def test_bench_runs_every_level():
    seen = []
    async with StreamingServer() as server:
        what = workload(concurrency=[1, 2], requests=4)
        results = [
            result
            async for result in bench(
                Target(server.url), what, seed=3, on_progress=lambda *heard: seen.append(heard)
            )
        ]
    assert [result.level for result in results] == ["c1", "c2"]
    assert {str(level) for level, _ in seen} == {"c1", "c2"}
    assert server.flushes == 2


async def test_key_and_extra_fields_reach_the_server():
    result, server = await level_of(
        Behaviour(), target={"api_key": "k", "extra": {"lora_path": "x"}}
    )
    assert flawless(result)
    assert {g.headers["authorization"] for g in server.generations} == {"Bearer k"}
    assert {g.body["lora_path"] for g in server.generations} == {"x"}
