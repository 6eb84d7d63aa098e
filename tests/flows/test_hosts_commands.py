"""`hosts`, `ps` and `stop`, on the simulated host."""

import json
import os
import signal
import time

import pytest

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]


def wait_for(condition, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)


def test_hosts_ps_and_stop(make_bed):
    unreachable = '[hosts.away]\naddress = "no-such-host.invalid"\n'
    bed = make_bed(lease="60s")
    settings = bed.folder / "settings.toml"
    settings.write_text(settings.read_text() + unreachable)
    listed = bed.run("hosts")
    assert listed.returncode == 3
    assert "8x NVIDIA RTX PRO 6000" in listed.stdout
    assert "away: no-such-host.invalid port 22 can't be reached" in listed.stdout
    assert "nothing of ours runs there" in bed.run("ps", "simulated").stdout

    load = {"name": "chat", "input_len": 64, "output_len": 500, "concurrency": 1, "requests": 400}
    night = bed.start("run", bed.sweep(workloads=[load]))
    wait_for(bed.holders)
    held = {row["name"]: row for row in json.loads(bed.run("hosts", "--json").stdout)}
    assert held["simulated"]["holder"].startswith("held by sweep small of ")
    assert held["away"]["reachable"] is False
    refused = bed.run("stop", "simulated")
    assert refused.returncode == 3
    assert "held by sweep small" in refused.stdout
    assert "--force" in refused.stdout

    os.killpg(night.pid, signal.SIGKILL)
    night.communicate()
    running = bed.run("ps", "simulated").stdout
    assert "launch_server" in running
    assert "ended" in bed.run("stop", "simulated", "--force").stdout
    assert bed.marked() == []
    assert "nothing of ours runs there" in bed.run("stop", "simulated", "--force").stdout
