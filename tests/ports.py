"""Ports for servers of the tests: those of tests that run at the same time don't meet."""

import os


def first_port() -> int:
    """The first of a hundred ports that only this process's tests look for."""
    return 12_000 + os.getpid() % 180 * 100
