"""Ports for servers of the tests: those of tests that run at the same time don't meet."""

import os
import socket


def first_port() -> int:
    """The first of a hundred ports that only this process's tests look for."""
    return 12_000 + os.getpid() % 180 * 100


def free_port() -> int:
    """A port of the kernel's choice that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
