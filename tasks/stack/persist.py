"""Keep the sweep's environment in a stack, for every process of its interpreter."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from tasks.domain.errors import HostError
from tasks.hosts.host import Host

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Persisted:
    """What was done to a stack's sitecustomize: `written`, `unchanged`, `removed` or `absent`."""

    stack: str
    path: str
    done: str


async def persist(host: Host, stack: str, env: Mapping[str, str]) -> Persisted:
    """Write variables into a stack's sitecustomize, as one block that is ours.

    A process' own environment is stronger. The file is backed up, and put back where the
    interpreter doesn't start with the block as it should. Raises `HostError` saying why not.
    """
    return await _applied(host, stack, {name: host.expand(env[name]) for name in env})


async def unpersist(host: Host, stack: str) -> Persisted:
    """Take the block out again. Raises `HostError` where it isn't as we wrote it."""
    return await _applied(host, stack, None)


async def _applied(host: Host, stack: str, env: Mapping[str, str] | None) -> Persisted:
    program = (resources.files("tasks.stack") / "block.py").read_bytes()
    completed = await host.run(
        [stack, "-", json.dumps({"env": env})],
        stdin=program,
        timeout_s=_TIMEOUT_S,
        repeatable=True,
    )
    try:
        answer = json.loads(completed.stdout.splitlines()[-1])
        return Persisted(stack, answer["path"], answer["done"])
    except (IndexError, ValueError) as error:
        said = (completed.stderr.decode(errors="replace").strip() or "no word").splitlines()[-1]
        raise HostError(host.name, f"{stack}: can't change its sitecustomize: {said}") from error
    except KeyError as error:
        raise HostError(host.name, f"{stack}: {answer['error']}") from error
