"""Ask a host for the facts of its stacks: one program, run by the stack's own interpreter."""

import asyncio
import json
import uuid
from collections.abc import Mapping
from importlib import resources

from settings.sweep import Sweep
from tasks.domain.errors import HostError
from tasks.domain.facts import GpuFacts, StackFacts
from tasks.domain.nvidia_smi import GPU_QUERY, parse_gpus
from tasks.hosts.host import MARK, Host
from tasks.stack.reading import IMPORTS, read_answer, unrunnable

IMPORT_TIMEOUT_S = 120.0
HELP_TIMEOUT_S = 240.0
"""SGLang's own argument parser imports nearly everything: minutes from a cold network disk."""

PROBE_TIMEOUT_S = 600.0
_AT_ONCE = 8


async def gather_facts(
    host: Host,
    interpreter: str,
    sweep: Sweep | None,
    import_timeout_s: float = IMPORT_TIMEOUT_S,
) -> StackFacts:
    """Run the probe under a stack; a stack that can't be run is a fact too, never an exception.

    The sweep's variables are set for it: they are part of the stack.
    """
    variables = {**host.settings.env, **(sweep.server.env if sweep else {})}
    request = {
        **_request(host, sweep, variables),
        "interpreter": host.expand(interpreter),
        "timeout_s": import_timeout_s,
    }
    mark = f"probe-{uuid.uuid4().hex[:12]}"
    try:
        completed = await host.run(
            [interpreter, "-", json.dumps(request)],
            env={**variables, MARK: mark},
            stdin=_program(),
            timeout_s=PROBE_TIMEOUT_S,
            repeatable=True,
        )
    except HostError as error:
        return unrunnable(interpreter, str(error))
    except asyncio.CancelledError:
        await asyncio.shield(host.stop(mark, 0))
        raise
    if completed.exit_code is None:
        await host.stop(mark, 0)
        return unrunnable(interpreter, f"no answer within {PROBE_TIMEOUT_S:.0f} s")
    stdout, stderr = (s.decode(errors="replace") for s in (completed.stdout, completed.stderr))
    return read_answer(interpreter, stdout, stderr)


async def gather_gpus(host: Host) -> tuple[tuple[GpuFacts, ...], str]:
    """Ask nvidia-smi for the GPUs; without one, also why."""
    command = host.settings.nvidia_smi
    try:
        completed = await host.run([*command, *GPU_QUERY], timeout_s=30.0, repeatable=True)
    except HostError as error:
        return (), str(error)
    # nvidia-smi complains on standard output.
    said = (completed.stdout + completed.stderr).decode(errors="replace").strip()
    gpus = parse_gpus(said) if completed.ok else ()
    first = said.partition("\n")[0] or "no answer"
    return gpus, "" if gpus else f"{' '.join(command)}: {first}"


def asked_paths(sweep: Sweep | None) -> list[str]:
    """The folders on the host that the sweep names; the name of a model on the hub is none."""
    if sweep is None:
        return []
    named = [sweep.server.model_path, sweep.speculative.draft_model_path or ""]
    return [path for path in named if path.startswith(("/", "~", "."))]


def _request(host: Host, sweep: Sweep | None, variables: Mapping[str, str]) -> dict[str, object]:
    return {
        "imports": IMPORTS,
        "launch": host.settings.launch,
        # Part of what the launch options are remembered by; NCCL's can't change them.
        "variables": {n: v for n, v in variables.items() if not n.startswith("NCCL_")},
        "folder": host.run_folder,
        "paths": asked_paths(sweep),
        "help_timeout_s": HELP_TIMEOUT_S,
        "at_once": _AT_ONCE,
    }


def _program() -> bytes:
    return (resources.files("tasks.stack") / "probe.py").read_bytes()
