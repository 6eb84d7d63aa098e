"""The command line of a measured server, ready to paste into a shell."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from tasks.domain.configuration import Attempt, TrialResult
from tasks.domain.secret import is_secret
from tasks.results.attempts import measured_attempt

PORT = 30_000
"""SGLang's own default: the sweep's port was only the one that was free that night."""


def deploy_command(result: TrialResult) -> str | None:
    """Build the line that starts the server as it was measured; None where none served."""
    attempt = measured_attempt(result)
    return None if attempt is None else attempt_command(attempt)


def deploy_lines(result: TrialResult) -> str | None:
    """Build the same over several lines: a variable or a flag each."""
    attempt = measured_attempt(result)
    return None if attempt is None else _every_node(attempt, _several_lines)


def attempt_command(attempt: Attempt) -> str:
    """Build the line of one launch: the variables that it had, then the command.

    The host's own variables are among them: without its CUDA_HOME it would be another server.
    Of a server over several hosts each node has a line, under a comment that names its host.
    """
    return _every_node(attempt, _line)


def _every_node(
    attempt: Attempt, written: Callable[[Mapping[str, str], Sequence[str]], str]
) -> str:
    nodes = [written(attempt.env, attempt.command)]
    for peer in attempt.peers:
        nodes += [f"# on {peer.host}:", written(peer.env, peer.command)]
    return "\n".join(nodes)


def _several_lines(env: Mapping[str, str], command: Sequence[str]) -> str:
    lines = [[assignment] for assignment in _assignments(env)]
    for number, word in enumerate(with_port(command, PORT)):
        if number == 0 or word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(" ".join(line) for line in lines)


def _line(env: Mapping[str, str], command: Sequence[str]) -> str:
    return " ".join([*_assignments(env), *with_port(command, PORT)])


def with_port(command: Sequence[str], port: int) -> Iterator[str]:
    """Quote a command for a shell, its port replaced; one that names no port stays as it is."""
    previous = ""
    for word in command:
        if previous == "--port":
            yield str(port)
        elif word.startswith("--port="):
            yield f"--port={port}"
        else:
            yield shlex.quote(word)
        previous = word


def _assignments(env: Mapping[str, str]) -> Iterator[str]:
    """Write variables; a secret is taken from the reader's own environment."""
    for name, value in env.items():
        yield f'{name}="${name}"' if is_secret(name) else f"{name}={shlex.quote(value)}"
