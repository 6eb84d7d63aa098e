"""A whole sweep whose servers run on two simulated hosts."""

import json
import subprocess
import sys

import pytest

from tests.flows.conftest import PROJECT

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

DIES_UNDER_LOAD = """
[[fault]]
kind = "silent-kill"
after_s = 1.0
when = {node_rank = 1, cuda_graph_max_bs = 256}
"""


def with_second_host(bed):
    """Make one more simulated host, a peer of the first."""
    root, scenario = bed.folder / "host-2", bed.folder / "scenario.toml"
    command = [sys.executable, "-m", "simulator.host", "--name", "second"]
    made = subprocess.run(
        [*command, "--root", str(root), "--scenario", str(scenario)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    with (bed.folder / "settings.toml").open("a") as settings:
        settings.write(made.stdout)
    return bed


def test_a_server_over_two_hosts_is_measured_and_the_death_of_one_node_is_told(make_bed):
    lines = 'peers = ["second"]\ncluster_address = "127.0.0.1"'
    bed = with_second_host(make_bed(DIES_UNDER_LOAD, host_lines=lines))
    server = {"model_path": str(bed.folder / "host/models/kimi"), "args": {"tp": 8, "nnodes": 2}}
    workload = {"name": "chat", "input_len": 64, "output_len": 256, "concurrency": 1, "requests": 8}
    sweep = bed.sweep(server=server, workloads=[workload], retry={"max_attempts": 1})
    planned = " ".join(bed.run("plan", sweep).stdout.split())
    assert "on second: " in planned
    assert "--node-rank 1 --dist-init-addr 127.0.0.1:" in planned

    done = bed.run("run", sweep, timeout_s=240)
    assert done.returncode in (0, 1), done.stdout  # a busy machine makes a trial suspect
    trials = {t["config"]["axes"]["cuda_graph_max_bs"]: t for t in bed.report()["trials"]}
    assert trials[128]["verdict"] in ("measured", "suspect"), trials[128]
    failure = trials[256]["failures"][-1]
    assert failure["mode"] == "scheduler-died-silently"
    assert failure["explanation"].startswith("node 1 (second): ")
    assert bed.holders() == []
    assert bed.marked() == []

    (sweep_folder,) = bed.store.glob("*-small-*")
    log = sweep_folder / "trials" / trials[256]["trial_id"] / "attempt-1" / "node-1" / "server.log"
    assert "Starting dummy health check server" in log.read_text()
    record = json.loads((log.parents[2] / "trial.json").read_text())
    [peer] = record["attempts"][0]["peers"]
    assert peer["host"] == "second"
    command = bed.report()["best"]["command"]
    assert "--node-rank 0" in command
    assert "# on second:\n" in command
    assert "--node-rank 1" in command


def test_what_several_nodes_lack_is_said_before_anything_starts(make_bed):
    bed = make_bed()
    server = {"model_path": "/m", "args": {"tp": 16, "nnodes": 2}}
    done = bed.run("run", bed.sweep(server=server))
    assert done.returncode == 2
    assert "hosts.simulated.peers: 2 nodes need 1 peers, and it lists none" in done.stdout
    assert not bed.store.exists()
