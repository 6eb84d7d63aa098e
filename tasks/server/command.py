"""The exact command line and environment of a server, and how they are written for a shell."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.domain.configuration import ServerConfiguration, Value
from tasks.domain.sglang import NODE_ADDRESS, NODE_RANK, resolve_flag

DEFAULT_PORT = 30000


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What is started: argv, and the variables that it is started with beside the host's own."""

    argv: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def shell(self) -> str:
        """One line to paste into a shell."""
        variables = [f"{name}={_quoted(value)}" for name, value in self.env.items()]
        return " ".join([*variables, *map(_quoted, self.argv)])

    @property
    def script(self) -> str:
        """A shell script that runs the same server in the foreground."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.env.items()]
        return "\n".join(["#!/bin/sh", *exports, f"exec {' '.join(map(_quoted, self.argv))}", ""])


@dataclass(frozen=True, slots=True)
class Place:
    """Which node of a server over several hosts this is, and where they all meet."""

    rank: int
    meeting: str


def command_line(
    configuration: ServerConfiguration,
    interpreter: str,
    launch: Sequence[str],
    *,
    port: int = DEFAULT_PORT,
    address: str = "127.0.0.1",
    known_flags: frozenset[str] = frozenset(),
    place: Place | None = None,
) -> CommandLine:
    """Spell a configuration out, each flag by the name that the target's SGLang knows."""
    argv = [interpreter, *launch, "--model-path", configuration.model_path]
    for name, value in configuration.args.items():
        argv += _flag(resolve_flag(name, known_flags), value)
    if place is not None:
        argv += [*_flag(NODE_RANK, place.rank), *_flag(NODE_ADDRESS, place.meeting)]
    argv += ["--host", address, "--port", str(port)]
    return CommandLine(tuple(argv), dict(configuration.env))


def _flag(name: str, value: Value) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    match value:
        case None | False:
            return []
        case True:
            return [flag]
        case list():
            return [flag, *map(str, value)]
        case _:
            return [flag, str(value)]


def _quoted(word: str) -> str:
    """Quote for a shell, leaving a leading `~/` to it."""
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") else shlex.quote(word)
