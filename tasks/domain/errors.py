"""The root of the errors that reach a person, each with its exit status.

One line names the thing, its value and the way out; a traceback is for our own faults only.
"""

from enum import IntEnum


class ExitStatus(IntEnum):
    """What the command line tool's exit status means."""

    OK = 0
    NOTHING_FEASIBLE = 1
    BAD_INPUT = 2
    HOST_NEEDS_PERSON = 3
    INTERRUPTED = 130


class SweepError(Exception):
    """Something that the caller can't be expected to mend in place."""

    exit_status = ExitStatus.HOST_NEEDS_PERSON


class InputError(SweepError):
    """What a person wrote is wrong: one fault a line in `faults`."""

    exit_status = ExitStatus.BAD_INPUT

    def __init__(self, source: str, faults: list[str]) -> None:
        self.source = source
        self.faults = faults
        super().__init__("\n".join(f"{source}: {fault}" for fault in faults))


class HostError(SweepError):
    """A host can't be reached or refuses what we need; names the host and the way out."""

    def __init__(self, host: str, message: str) -> None:
        self.host = host
        super().__init__(f"host {host}: {message}")


class HostUnreachable(HostError):
    """No connection to a host can be made, or none could be mended in time."""


class ConnectionBroken(HostError):
    """The connection broke while a command ran; whether the command did its work isn't known."""


class HostLocked(HostError):
    """Another sweep holds the host."""


class LeaseExpired(HostError):
    """Our own supervisor ended the server, since nobody renewed its lease: no fault of its own."""


class GpusNotFree(HostError):
    """Processes that we may not end, or can't, still hold the GPUs."""


class StackUnfit(HostError):
    """No software stack of the host can serve; nothing was launched."""
