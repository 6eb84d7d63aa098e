"""On which hosts a sweep's servers run: its own, and that one's peers where a server needs more.

The sweep file says over how many (`nnodes`), the settings say which.
"""

from settings.application import Settings
from settings.axes import NODES
from settings.host import Host
from settings.invalid import InvalidSettings
from settings.sweep import Sweep


def most_nodes(sweep: Sweep) -> int:
    """Over how many hosts the largest server of a sweep runs."""
    asked = [sweep.server.args.get(NODES), *sweep.axes.get(f"args.{NODES}", [])]
    asked.append(sweep.baseline.get(f"args.{NODES}"))
    return max((value for value in asked if isinstance(value, int)), default=1) or 1


def at_same_place(stack: str, first: Host, other: Host) -> str:
    """What runs a node on another host: the interpreter at the same place of that host's list.

    One that isn't in the first host's list, but named by the sweep, has the same path everywhere.
    """
    return other.stacks[first.stacks.index(stack)] if stack in first.stacks else stack


def hosts_of(settings: Settings, sweep: Sweep) -> dict[str, Host]:
    """The hosts that a sweep needs, the first node's first.

    Raises `InvalidSettings` naming the field that doesn't allow it.
    """
    name, count = sweep.host, most_nodes(sweep)
    first = settings.host(name)
    if count == 1:
        return {name: first}
    place = f"hosts.{name}"
    peers = first.peers[: count - 1]
    if len(peers) < count - 1:
        listed = f"lists {len(peers)}" if peers else "lists none"
        fault = f"{count} nodes need {count - 1} peers, and it {listed}"
        way_out = f'name them in [hosts.{name}]: peers = ["another-host"]'
        raise InvalidSettings(f"{place}.peers", [f"{fault}; {way_out}"])
    if len({name, *peers}) < count:
        raise InvalidSettings(f"{place}.peers", [f"{list(peers)} names a host twice, or {name}"])
    if first.cluster_address is None:
        fault = f"missing; say where {', '.join(peers)} reach it, such as its own IP address"
        raise InvalidSettings(f"{place}.cluster_address", [fault])
    found = {name: first, **{peer: settings.host(peer) for peer in peers}}
    for peer, host in found.items():
        if len(host.stacks) != len(first.stacks):
            fault = f"{len(host.stacks)} where {name} has {len(first.stacks)}"
            way_out = "nodes run the interpreters at the same place of their lists"
            raise InvalidSettings(f"hosts.{peer}.stacks", [f"{fault}; {way_out}"])
    return found
