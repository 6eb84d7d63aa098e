"""Where the trials of a sweep are launched: a host that is ours, and its fit stacks."""

from dataclasses import dataclass

from tasks.domain.configuration import ServerConfiguration
from tasks.domain.facts import StackReport
from tasks.hosts.host import Host
from tasks.hosts.lock import Hold
from tasks.server.launch import Patience


@dataclass(frozen=True, slots=True)
class Site:
    """A held host; `stacks` are those that are fit, in the user's order of preference.

    `peers` are more hosts, held too, for the further nodes of servers over several.
    """

    hold: Hold
    stacks: tuple[StackReport, ...]
    patience: Patience
    peers: tuple[Hold, ...] = ()

    @property
    def host(self) -> Host:
        """The host itself."""
        return self.hold.host

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Every host that is held, the first node's first."""
        return (self.hold, *self.peers)

    def holds_for(self, configuration: ServerConfiguration) -> tuple[Hold, ...]:
        """The hosts that a server runs on, by the rank of its nodes."""
        return self.holds[: configuration.nodes]

    def stack_for(self, configuration: ServerConfiguration, moves: int) -> StackReport | None:
        """The stack that a configuration runs on after `moves` remedies asked for another one.

        A configuration that names its stack stays on it; None where there is none left.
        """
        if configuration.stack is not None:
            wanted = self.host.expand(configuration.stack)
            named = [s for s in self.stacks if self.host.expand(s.stack) == wanted]
            return named[0] if named and moves == 0 else None
        return self.stacks[moves] if moves < len(self.stacks) else None
