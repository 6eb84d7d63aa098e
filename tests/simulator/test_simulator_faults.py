"""Each fault, one by one, as a launch shows it."""

import os
import signal
import subprocess
import time

import httpx
import pytest

from simulator.flags import parse
from simulator.scenario import Fault, ScenarioError, load, matches, value_matches
from simulator.scenario import parse as parse_scenario

QUICK = "time_scale = 0.02\nlaunch_time_scale = 0.0\n"
SIGQUIT = "Received sigquit from a child process. It usually means the child failed."
PARAMS = {"max_new_tokens": 20, "ignore_eos": True, "temperature": 0}


def fault(kind: str, **details: object) -> str:
    lines = [f"{name} = {value}" for name, value in details.items()]
    return "\n".join([QUICK, "[[fault]]", f'kind = "{kind}"', *lines, ""])


def ask(url: str, timeout: float = 20) -> httpx.Response:
    body = {"text": "hello there", "sampling_params": PARAMS}
    return httpx.post(f"{url}/generate", json=body, timeout=timeout)


@pytest.mark.parametrize(
    ("expected", "actual", "result"),
    [
        (5, 5, True),
        (5, "5", True),
        (5, None, False),
        ([1, 5], 5, True),
        ({"min": 256}, 512, True),
        ({"min": 256}, 128, False),
        ({"min": 2, "max": 4}, 3, True),
        ({"max": 4}, None, False),
        ({"not": "LL"}, "Simple", True),
        ({"not": "LL"}, "LL", False),
        ({"absent": True}, None, True),
        ({"absent": True}, "x", False),
        (True, True, True),
        (False, None, True),
        ("EAGLE3", "EAGLE3", True),
    ],
)
def test_values_match(expected: object, actual: object, result: bool) -> None:
    assert value_matches(expected, actual) is result


def test_a_when_looks_at_arguments_variables_and_the_stack() -> None:
    when = {"tp_size": 8, "env": {"NCCL_PROTO": "LL"}, "stack": "cu128"}
    configuration = parse(["--model-path", "m", "--tp", "8"])
    environment = {"NCCL_PROTO": "LL", "SIMULATOR_STACK": "cu128"}
    subject = Fault("garbage", when, None, {})
    assert matches(subject, configuration, environment)
    assert not matches(subject, configuration, environment | {"NCCL_PROTO": "Simple"})
    assert not matches(subject, configuration, {"NCCL_PROTO": "LL"})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"fault": [{"kind": "fire"}]}, "unknown fault kind 'fire': use abi-undefined-symbol"),
        ({"model": {"speed": 1}}, r"unknown key 'speed' in \[model\]"),
        ({"time": 1}, "unknown key 'time' in scenario"),
    ],
)
def test_a_scenario_that_cannot_be_meant(data: dict[str, object], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        parse_scenario(data)


def test_a_scenario_file_that_is_not_there() -> None:
    with pytest.raises(ScenarioError, match="scenario /nowhere"):
        load("/nowhere")
    assert load(None).faults == ()


def test_cudnn_check_until_its_variable_is_set(simulator) -> None:
    scenario = fault("cudnn-check")
    refused = simulator.launch(scenario=scenario, env={"SIMULATOR_STACK": "cu128"})
    assert refused.await_exit() == 1
    assert "CRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected" in refused.log
    assert "PyTorch 2.9.1+cu128 | CuDNN 9.10" in refused.log
    assert "setting env var SGLANG_DISABLE_CUDNN_CHECK=1" in refused.log
    cured = simulator.serve(scenario=scenario, env={"SGLANG_DISABLE_CUDNN_CHECK": "1"})
    assert cured.stop() == 0


def test_an_undefined_symbol_on_one_stack(simulator) -> None:
    scenario = fault("abi-undefined-symbol", when='{stack = "cu128"}')
    refused = simulator.launch(scenario=scenario, env={"SIMULATOR_STACK": "cu128"})
    assert refused.await_exit() == 1
    assert "[sgl_kernel] CRITICAL: Could not load any common_ops library!" in refused.log
    assert "common_ops.abi3.so: undefined symbol: _ZN3c104cuda29c10_cuda_check" in refused.log
    assert simulator.serve(env={"SIMULATOR_STACK": "cu130"}, scenario=scenario).stop() == 0


def test_out_of_memory_in_graph_capture_above_a_limit(simulator) -> None:
    scenario = fault("oom-graph-capture", when="{cuda_graph_max_bs = {min = 256}}")
    for flags in (["--cuda-graph-max-bs", "256"], []):
        refused = simulator.launch(*flags, scenario=scenario)
        assert refused.await_exit() == -signal.SIGKILL
        assert "Exception: Capture cuda graph failed: CUDA out of memory. Tried to" in refused.log
        assert "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)" in refused.log
        assert refused.log.rstrip().endswith(SIGQUIT)
    assert simulator.serve("--cuda-graph-max-bs", "128", scenario=scenario).stop() == 0


def test_nccl_hangs_for_ever(simulator) -> None:
    hanging = simulator.launch(scenario=fault("nccl-hang"))
    hanging.await_log("Init torch distributed begin.")
    time.sleep(0.3)
    assert hanging.log.rstrip().endswith("Init torch distributed begin.")
    assert hanging.process.poll() is None
    hanging.process.terminate()
    assert hanging.await_exit() == -signal.SIGTERM


def test_death_in_mid_load_with_a_cuda_error(simulator) -> None:
    served = simulator.serve(scenario=fault("death-mid-load", after_requests=3))
    assert [ask(served.url).status_code for _ in range(2)] == [200, 200]
    with pytest.raises(httpx.TransportError):
        ask(served.url)
    assert served.await_exit() == -signal.SIGKILL
    assert "torch.AcceleratorError: CUDA error: an illegal memory access was enc" in served.log
    assert served.log.rstrip().endswith(SIGQUIT)


def test_death_after_a_while(simulator) -> None:
    served = simulator.serve(scenario=fault("death-mid-load", after_s=0.1))
    assert served.await_exit() == -signal.SIGKILL
    assert "illegal memory access" in served.log


def test_a_silent_kill_says_nothing(simulator) -> None:
    served = simulator.launch(scenario=fault("silent-kill"))
    assert served.await_exit() == -signal.SIGKILL
    assert "3/8 [" in served.log.splitlines()[-1]
    serving = simulator.serve(scenario=fault("silent-kill", after_requests=1))
    with pytest.raises(httpx.TransportError):
        ask(serving.url)
    assert serving.await_exit() == -signal.SIGKILL
    assert "POST /generate" not in serving.log.split("ready to roll!")[1]


def test_a_port_that_a_stranger_takes(simulator) -> None:
    served = simulator.launch(scenario=fault("port-taken"))
    assert served.await_exit() == 3
    assert (
        f"ERROR:    [Errno 98] error while attempting to bind on address "
        f"('127.0.0.1', {served.port}): address already in use" in served.log
    )
    assert "The server is fired up and ready to roll!" in served.log


def test_a_port_that_another_server_has(simulator) -> None:
    roomy = QUICK + "[model]\ngpu_mib = 900000.0\n"
    first = simulator.serve("--tp", "1", scenario=roomy)
    second = simulator.launch("--tp", "1", "--base-gpu-id", "4", port=first.port, scenario=roomy)
    assert second.await_exit() == 3
    assert "[Errno 98] error while attempting to bind on address" in second.log
    assert ask(first.url).status_code == 200
    first.stop()


def test_a_child_that_outlives_its_parent_and_holds_the_gpus(simulator) -> None:
    served = simulator.serve(scenario=fault("leaky-child", attempts=1))
    assert served.stop() == 0
    left = served.children()
    pid = left["sglang::scheduler_TP0"]
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.05)
    smi = str(simulator.root / "bin" / "nvidia-smi")
    query = ["--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    answer = subprocess.run([smi, *query], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [f"{pid}, sglang::scheduler_TP0"] * 8
    blocked = simulator.launch(scenario=fault("leaky-child", attempts=1))
    assert blocked.await_exit() == -signal.SIGKILL
    assert f"Process {pid} has 87.12 GiB memory in use." in blocked.log
    os.kill(pid, signal.SIGKILL)
    assert simulator.serve(scenario=fault("leaky-child", attempts=1)).stop() == 0


def test_health_long_before_anything_can_be_generated(simulator) -> None:
    waiting = simulator.serve(scenario=fault("health-early", seconds=60))
    assert httpx.get(f"{waiting.url}/health").status_code == 200
    with pytest.raises(httpx.ReadTimeout):
        ask(waiting.url, timeout=0.1)
    waiting.stop()
    served = simulator.serve(scenario=fault("health-early", seconds=0.5))
    assert ask(served.url).status_code == 200
    served.stop()
    refusing = simulator.serve(scenario=fault("health-early", seconds=60, mode='"refuse"'))
    assert httpx.get(f"{refusing.url}/health").status_code == 200
    assert ask(refusing.url).status_code == 503
    refusing.stop()


@pytest.mark.parametrize("kind", ["garbage", "nan"])
def test_fast_but_wrong(simulator, kind: str) -> None:
    served = simulator.serve(scenario=fault(kind, speedup=3.0))
    answer = ask(served.url).json()
    assert answer["text"] == "!" * 20
    assert answer["output_ids"] == [0] * 20
    fast = answer["meta_info"]["decode_throughput"]
    served.stop()
    healthy = simulator.serve()
    usual = ask(healthy.url).json()["meta_info"]["decode_throughput"]
    # Times are sums of floats since the server's start: they agree to microseconds, not to bits.
    assert fast == pytest.approx(3 * usual, rel=1e-3)
    healthy.stop()


def test_a_healthy_configuration_gives_the_same_answer_however_it_is_tuned(simulator) -> None:
    answers = set()
    for flags in ([], ["--cuda-graph-max-bs", "8", "--speculative-algorithm", "EAGLE3"]):
        served = simulator.serve(*flags)
        answers.add(ask(served.url).json()["text"])
        served.stop()
    assert len(answers) == 1


def test_a_slow_start_is_slow_in_its_phase(simulator) -> None:
    scenario = fault("slow-start", seconds=100, phase='"capture"').replace(
        "launch_time_scale = 0.0", "launch_time_scale = 0.005"
    )
    began_s = time.monotonic()
    assert simulator.serve("--cuda-graph-max-bs", "8", scenario=scenario).stop() == 0
    assert time.monotonic() - began_s > 0.5


def test_a_fault_may_strike_only_the_first_launches(simulator) -> None:
    scenario = fault("oom-graph-capture", attempts=2)
    for _ in range(2):
        assert simulator.launch(scenario=scenario).await_exit() == -signal.SIGKILL
    assert simulator.serve(scenario=scenario).stop() == 0
