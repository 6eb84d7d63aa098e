"""A server's life as its owner sees it: processes, devices, signals, log."""

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

QUICK = "time_scale = 0.02\nlaunch_time_scale = 0.0\n"
PROGRESS = [
    "server_args=ServerArgs(model_path=",
    "Init torch distributed begin.",
    "Load weight begin. avail mem=",
    "Loading safetensors checkpoint shards:  37% Completed | 3/8",
    "Load weight end.",
    "KV Cache is allocated. #tokens: ",
    "Memory pool end.",
    "Capture cuda graph begin. This can take up to several minutes.",
    "Capturing batches (bs=",
    "Capture cuda graph end.",
    "max_total_num_tokens=",
    "Uvicorn running on http://127.0.0.1:",
    "The server is fired up and ready to roll!",
]


def test_the_progress_lines_come_in_sglangs_order(simulator) -> None:
    served = simulator.serve()
    places = [served.log.find(line) for line in PROGRESS]
    assert -1 not in places
    assert places == sorted(places)
    assert served.stop() == 0


# Pretends GPUs that hold the model's weights even where there are only two of them.
ROOMY = QUICK + "[model]\ngpu_mib = 400000.0\n"


def open_files(pid: int) -> set[str]:
    return {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}


def test_children_have_sglangs_names_the_environment_and_the_devices(simulator) -> None:
    served = simulator.serve()
    children = served.children()
    ranks = {f"sglang::scheduler_TP{rank}" for rank in range(8)}
    assert set(children) == ranks | {"sglang::detokenizer"}
    devices = {str(simulator.root / "dev" / name) for name in ("nvidia3", "nvidiactl")}
    assert devices <= open_files(children["sglang::scheduler_TP3"])
    comm = Path(f"/proc/{children['sglang::detokenizer']}/comm").read_text()
    assert comm.startswith("sglang::detoken")
    served.stop()


def test_a_renamed_process_hides_its_environment_unless_told_not_to(simulator) -> None:
    served = simulator.serve(env={"SPT_NOENV": ""})
    assert served.children() == {}
    served.stop()


def test_visible_devices_are_chosen_by_the_environment(simulator) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "5,6"}
    served = simulator.serve("--tp", "2", scenario=ROOMY, env=env)
    second = served.children()["sglang::scheduler_TP1"]
    assert "sglang::scheduler_TP2" not in served.children()
    assert str(simulator.root / "dev" / "nvidia6") in open_files(second)
    served.stop()


def test_sigterm_drains_what_runs(simulator) -> None:
    served = simulator.serve()
    params = {"max_new_tokens": 1500, "ignore_eos": True}
    texts: list[str] = []

    def ask() -> None:
        body = {"text": "hello", "stream": True, "sampling_params": params}
        texts.append(httpx.post(f"{served.url}/generate", json=body, timeout=30).text)

    client = threading.Thread(target=ask)
    client.start()
    served.await_log("Prefill batch")
    assert served.stop() == 0
    client.join()
    assert texts[0].endswith("data: [DONE]\n\n")
    assert '"completion_tokens":1500' in texts[0]
    assert "Draining requests and shutting down..." in served.log
    assert "Gracefully exiting... Remaining number of requests 1. " in served.log
    assert "Remaining number of requests 0. Remaining requests remaining_rids=[]." in served.log


def test_a_signal_to_the_whole_group_is_a_clean_end(simulator) -> None:
    served = simulator.serve()
    os.killpg(served.process.pid, signal.SIGTERM)
    assert served.await_exit() == 0
    assert "Received sigquit" not in served.log


def test_lateness_is_counted_for_every_chunk(simulator) -> None:
    served = simulator.serve()
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 50, "ignore_eos": True}}
    httpx.post(f"{served.url}/generate", json=body | {"stream": True})
    figures = httpx.get(f"{served.url}/simulator/lateness").json()
    assert figures["chunks"] == 50
    assert 0 <= figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    served.stop()
    assert "simulator: lateness of sent chunks: chunks=50 " in served.log


def test_a_killed_scheduler_takes_the_server_down(simulator) -> None:
    served = simulator.serve()
    os.kill(served.children()["sglang::scheduler_TP5"], signal.SIGKILL)
    assert served.await_exit() == -signal.SIGKILL
    assert "Received sigquit from a child process. It usually means the child failed." in served.log


def test_a_killed_server_takes_its_children_along(simulator) -> None:
    served = simulator.serve()
    served.process.kill()
    served.process.wait()


def test_a_scheduler_that_dies_while_starting_is_reported(simulator) -> None:
    slow = 'launch_time_scale = 0.01\n[[fault]]\nkind = "slow-start"\nphase = "distributed"\n'
    served = simulator.launch(scenario=slow + "seconds = 6000\n")
    served.await_log("Init torch distributed begin.")
    os.kill(served.children()["sglang::scheduler_TP2"], signal.SIGKILL)
    assert served.await_exit() == 1
    assert "Rank 2 scheduler is dead. Please check if there are relevant logs." in served.log
    assert "Exit code: -9" in served.log
    assert served.log.rstrip().endswith("EOFError")


def test_a_model_that_does_not_exist(simulator) -> None:
    served = simulator.launch(model="/nowhere/model")
    assert served.await_exit() == 1
    assert "OSError: Can't load the configuration of '/nowhere/model'." in served.log


def test_too_few_gpus(simulator) -> None:
    served = simulator.launch("--tp", "8", env={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert served.await_exit() == -signal.SIGKILL
    assert "CUDA error: invalid device ordinal" in served.log


def test_weights_that_do_not_fit(simulator) -> None:
    served = simulator.launch("--tp", "4")
    assert served.await_exit() == -signal.SIGKILL
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB." in served.log


def test_graphs_that_leave_no_cache(simulator) -> None:
    served = simulator.launch("--cuda-graph-max-bs", "1024")
    assert served.await_exit() == -signal.SIGKILL
    assert "RuntimeError: Not enough memory. Please try to increase --mem-fraction-st" in served.log


def test_a_second_server_on_the_same_gpus_runs_out_of_memory(simulator) -> None:
    first = simulator.serve()
    second = simulator.launch()
    assert second.await_exit() == -signal.SIGKILL
    assert "memory in use." in second.log
    assert any(f"Process {pid} has" in second.log for pid in first.children().values())
    first.stop()


def test_the_later_version_has_its_own_flags_and_words(simulator) -> None:
    scenario = QUICK + 'sglang_version = "0.5.23"\n'
    served = simulator.serve("--cuda-graph-max-bs-decode", "64", scenario=scenario)
    assert "Init parallel begin." in served.log
    assert "Multi-thread loading shards:  37% Completed | 3/8" in served.log
    info = httpx.get(f"{served.url}/server_info").json()
    assert (info["version"], info["cuda_graph_max_bs_decode"]) == ("0.5.23", 64)
    served.stop()
    refused = simulator.launch("--cuda-graph-max-bs", "64", scenario=scenario)
    assert refused.await_exit() == 2


def test_a_bad_scenario_is_told_in_one_line(simulator) -> None:
    simulator.create_host()
    served = simulator.launch(scenario="speed = 3\n")
    assert served.await_exit() == 64
    assert "unknown key 'speed' in scenario" in served.log


def ask(url: str, number: int) -> dict[str, float]:
    """Generate 100 tokens for a prompt of its own and return the `meta_info`."""
    params = {"max_new_tokens": 100, "ignore_eos": True}
    body = {"input_ids": [number + 9000, 1, 2, 3, 4], "sampling_params": params}
    answer = httpx.post(f"{url}/generate", json=body, timeout=30)
    return dict(answer.json()["meta_info"])


def truth(simulator, concurrency: int) -> float:
    """Return the true mean milliseconds a token after the first."""
    workload = {"input_len": 5, "output_len": 100, "concurrency": concurrency, "requests": 4}
    query = ["--args", "--tp 8", "--workload", json.dumps(workload), "--json"]
    scenario = ["--scenario", str(simulator.folder / "scenario.toml")]
    run = simulator.program("simulator.truth", *query, *scenario)
    return float(json.loads(run.stdout)["mean_tpot_ms"])


def test_the_server_follows_the_engine_that_tells_the_truth(simulator) -> None:
    served = simulator.serve(scenario="time_scale = 0.05\nlaunch_time_scale = 0.0\n")
    alone = ask(served.url, 0)["decode_throughput"]
    assert 1000 / alone == pytest.approx(truth(simulator, 1), rel=0.001)
    with ThreadPoolExecutor(4) as clients:
        metas = list(clients.map(lambda number: ask(served.url, number), range(1, 5)))
    together = sum(1000 / meta["decode_throughput"] for meta in metas) / 4
    assert together == pytest.approx(truth(simulator, 4), rel=0.5)
    served.stop()
