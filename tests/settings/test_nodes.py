"""A server over several hosts: the sweep says over how many, the settings say which."""

import pytest
from pydantic import ValidationError

from settings.application import Settings
from settings.faults import describe
from settings.host import Host
from settings.invalid import InvalidSettings
from settings.nodes import at_same_place, hosts_of, most_nodes
from settings.sweep import Sweep


def sweep(**changes: object) -> Sweep:
    workloads = [{"name": "w", "concurrency": 1}]
    server = {"model_path": "m"}
    return Sweep.model_validate({"name": "n", "server": server, "workloads": workloads, **changes})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"server": {"model_path": "m", "args": {"nnodes": 2, "node_rank": 1}}},
            "server.args.node_rank: 1 can't be chosen: each node gets its own from the sweep;"
            " leave it out, and set nnodes",
        ),
        (
            {"server": {"model_path": "m", "args": {"dist-init-addr": "10.0.0.1:5000"}}},
            "server.args.dist_init_addr: '10.0.0.1:5000' can't be chosen",
        ),
        ({"axes": {"args.nnodes": [1, 0]}}, "0 is not a whole number of hosts of at least 1"),
        ({"axes": {"args.nnodes": ["2"]}}, "'2' is not a whole number of hosts of at least 1"),
    ],
)
def test_what_each_node_is_told_isn_t_written_into_a_sweep(changes, fault):
    with pytest.raises(ValidationError) as raised:
        sweep(**changes)
    lines = [line for _, line in describe(raised.value, Sweep)]
    assert any(fault in line for line in lines), lines


def test_a_sweep_says_over_how_many_hosts_its_largest_server_runs():
    assert most_nodes(sweep()) == 1
    assert most_nodes(sweep(server={"model_path": "m", "args": {"nnodes": 2}})) == 2
    assert most_nodes(sweep(axes={"args.nnodes": [1, 4, None]})) == 4


PEERS = {"peers": ("b", "c"), "cluster_address": "10.0.0.1"}


@pytest.mark.parametrize(
    ("hosts", "fault"),
    [
        (
            {"a": {}},
            "hosts.a.peers: 2 nodes need 1 peers, and it lists none; name them in [hosts.a]",
        ),
        (
            {"a": {"peers": ("a",), "cluster_address": "x"}},
            "hosts.a.peers: ['a'] names a host twice",
        ),
        ({"a": {"peers": ("b",)}, "b": {}}, "hosts.a.cluster_address: missing; say where b reach"),
        ({"a": PEERS, "bb": {}}, "host: 'b' is not configured; did you mean 'bb'"),
        ({"a": PEERS, "b": {"stacks": ("x", "y")}}, "hosts.b.stacks: 2 where a has 1"),
    ],
)
def test_hosts_that_can_t_run_several_nodes_are_refused_with_the_way_out(hosts, fault):
    settings = Settings(hosts={name: Host(**fields) for name, fields in hosts.items()})
    asked = sweep(host="a", server={"model_path": "m", "args": {"nnodes": 2}})
    with pytest.raises(InvalidSettings) as raised:
        hosts_of(settings, asked)
    assert str(raised.value).startswith(fault)


def test_a_sweep_gets_the_hosts_that_it_needs_and_no_more():
    settings = Settings(hosts={"a": Host(**PEERS), "b": Host(), "c": Host()})
    for nodes, expected in ((1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"])):
        asked = sweep(host="a", server={"model_path": "m", "args": {"nnodes": nodes}})
        assert list(hosts_of(settings, asked)) == expected
    first, other = Host(stacks=("~/one", "~/two")), Host(stacks=("/1", "/2"))
    assert at_same_place("~/two", first, other) == "/2"
    assert at_same_place("/named/by/an/axis", first, other) == "/named/by/an/axis"
