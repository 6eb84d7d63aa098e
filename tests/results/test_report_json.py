"""The report for machines, and the command line that a person pastes."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.configuration import PeerCommand
from tasks.results.command_line import deploy_command
from tasks.results.records import StoredSweep
from tasks.results.report_json import report_json
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep, load_sweep
from tests.results import factory
from tests.results.factory import NIGHT, attempt, measured, night, trial


@pytest.fixture
def stored(tmp_path: Path) -> StoredSweep:
    folder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    for result in night():
        save_trial(folder, result)
    return load_sweep(tmp_path, "latest")


def test_the_shape_of_the_report(stored: StoredSweep):
    report = json.loads(json.dumps(report_json(stored), allow_nan=False))
    assert report["sweep_id"] == stored.record.sweep_id
    assert report["state"] == "running"
    best = report["best"]
    assert best["config"]["axes"] == {"cuda_graph_max_bs": 128, "speculative_steps": 0}
    assert set(best["config"]) == {"axes", "model_path", "args", "env", "stack"}
    assert best["metrics"]["chat/c64"]["output_throughput"] == 1308
    assert best["gain"]["interval"][0] > 1
    assert report["baseline"]["metrics"]["chat/c64"]["output_throughput"] == 1200
    assert len(report["trials"]) == 6
    assert {"trial_id", "config", "verdict", "attempts", "failures", "remedies", "metrics"} <= set(
        report["trials"][0]
    )


def test_a_cured_failure_names_its_cure(stored: StoredSweep):
    base = next(t for t in report_json(stored)["trials"] if t["baseline"])
    assert [a["failure"] for a in base["attempts"]] == ["cudnn-conv3d-check", None, None]
    (failure,) = base["failures"]
    assert failure["mode"] == "cudnn-conv3d-check"
    assert failure["remedy"]["env"] == {"SGLANG_DISABLE_CUDNN_CHECK": "1"}
    assert failure["cured_by_attempt"] == 2
    assert failure["evidence"][0]["line"] == 118
    assert base["remedies"][0]["summary"] == "skip SGLang's cuDNN version check"


def test_nothing_feasible_is_null(tmp_path: Path):
    create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    report = report_json(load_sweep(tmp_path, "latest"))
    assert (report["best"], report["baseline"], report["trials"]) == (None, None, [])


def test_a_metric_that_is_no_number_is_left_out(stored: StoredSweep):
    odd = measured(trial(), levels=(factory.level(100, accept_length=float("nan")),))
    report = report_json(replace(stored, trials=(odd,)))
    metrics = report["trials"][0]["metrics"]["chat/c64"]
    assert "accept_length" not in metrics
    json.dumps(report, allow_nan=False)


def test_the_command_is_that_of_the_cured_launch():
    base = night()[0]
    assert deploy_command(base) == (
        "NCCL_PROTO=LL NCCL_ALGO=Ring NCCL_P2P_LEVEL=SYS SGLANG_DISABLE_CUDNN_CHECK=1 "
        "/root/ml-env/bin/python3 -m sglang.launch_server --model-path /shared/kimi-k2.5-int4 "
        "--tp 8 --trust-remote-code --cuda-graph-max-bs 64 --host 127.0.0.1 --port 30000"
    )


def test_the_command_has_the_hosts_variables_and_survives_a_shell():
    wanted = trial()
    words = ("python3", "-m", "sglang.launch_server", "--json", '{"a": "b c$"}', "--port=41000")
    configuration = replace(wanted.configuration, env={"X": "it's; rm -rf /"})
    wanted = replace(wanted, configuration=configuration)
    launched = attempt(
        wanted, command=words, env={"CUDA_HOME": "/opt/cuda 13", "X": "it's; rm -rf /"}
    )
    line = deploy_command(measured(wanted, 10, attempts=(launched,)))
    assert line is not None
    assert shlex.split(line) == [
        "CUDA_HOME=/opt/cuda 13",
        "X=it's; rm -rf /",
        *words[:-1],
        "--port=30000",
    ]


def test_the_command_of_several_hosts_has_each_and_no_secret():
    wanted = night()[0].trial
    peer = PeerCommand("b", ("python3", "--port", "31000"), {"B": "2"})
    launched = replace(
        attempt(wanted, command=("python3", "--port", "30007"), env={"HF_TOKEN": "hf_x"}),
        peers=(peer,),
    )
    line = deploy_command(measured(wanted, 10, attempts=(launched,)))
    assert line == 'HF_TOKEN="$HF_TOKEN" python3 --port 30000\n# on b:\nB=2 python3 --port 30000'


def test_a_trial_that_never_served_has_no_command():
    assert deploy_command(night()[4]) is None
