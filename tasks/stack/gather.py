"""Ask a host for the facts of its stacks: one program, run by the stack's own interpreter."""

import asyncio
import json
import uuid
from collections.abc import Mapping

from settings.sweep import Sweep
from tasks.domain.errors import HostError
from tasks.domain.facts import GpuFacts, StackFacts
from tasks.domain.nvidia_smi import GPU_QUERY, parse_gpus
from tasks.hosts.host import MARK, Host
from tasks.stack.nccl_checks import nccl_axes
from tasks.stack.reading import CACHED, EXTENDED, IMPORTS, REQUIREMENTS, read_answer, unrunnable
from tasks.stack.shipped import probe_program

IMPORT_TIMEOUT_S = 120.0
HELP_TIMEOUT_S = 240.0
"""SGLang's own argument parser imports nearly everything: minutes from a cold network disk."""

PROBE_TIMEOUT_S = 600.0
LIVENESS_TIMEOUT_S = 30.0
"""An interpreter that runs nothing answers in tenths of a second, from a cold disk in seconds."""

_BARE_TIMEOUT_S = 10.0
_STARTUP_FILES = """
import glob, os, sys
# Without its start-up files it doesn't know that it is a virtual environment.
folder = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
places = os.environ.get("PYTHONPATH", "").split(":") + [folder + "/lib/python3*/site-packages"]
files = [f for n in ("*custom*.py", "*.pth") for p in places if p for f in glob.glob(p + "/" + n)]
print(", ".join(files) or "none of its own")
"""
_AT_ONCE = 8


async def gather_facts(
    host: Host,
    interpreter: str,
    sweep: Sweep | None,
    import_timeout_s: float = IMPORT_TIMEOUT_S,
    liveness_timeout_s: float = LIVENESS_TIMEOUT_S,
) -> StackFacts:
    """Run the probe under a stack; a stack that can't be run is a fact too, never an exception.

    The sweep's variables are set for it: they are part of the stack.
    """
    variables = {**host.settings.env, **(sweep.server.env if sweep else {})}
    hangs = await why_it_hangs(host, interpreter, variables, liveness_timeout_s)
    if hangs:
        return unrunnable(interpreter, hangs)
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
            stdin=probe_program(),
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


async def why_it_hangs(
    host: Host, interpreter: str, variables: Mapping[str, str], timeout_s: float
) -> str:
    """Why an interpreter doesn't even start in time; empty where it does, or fails at once.

    It costs one more start, and saves minutes where a start-up file waits for something.
    """
    try:
        started = await host.run(
            [interpreter, "-c", ""], env=variables, timeout_s=timeout_s, repeatable=True
        )
        if started.exit_code is not None:
            return ""
        bare = await host.run(
            [interpreter, "-I", "-S", "-c", _STARTUP_FILES],
            env=variables,
            timeout_s=_BARE_TIMEOUT_S,
            repeatable=True,
        )
    except HostError:
        return ""
    silent = f"it hangs: no answer to an empty program within {timeout_s:g} s"
    if not bare.ok:
        return silent
    files = bare.stdout.decode(errors="replace").strip()
    return f"{silent}, but without its start-up files it answers; they are {files}"


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


def asked_models(sweep: Sweep | None) -> list[str]:
    """The models that the sweep names: folders on the host, or names on the hub."""
    if sweep is None:
        return []
    named = [sweep.server.model_path, sweep.speculative.draft_model_path or ""]
    return list(dict.fromkeys(path for path in named if path))


def _request(host: Host, sweep: Sweep | None, variables: Mapping[str, str]) -> dict[str, object]:
    return {
        "imports": IMPORTS,
        "launch": host.settings.launch,
        # Part of what the launch options are remembered by; NCCL's can't change them.
        "variables": {n: v for n, v in variables.items() if not n.startswith("NCCL_")},
        "folder": host.run_folder,
        "models": asked_models(sweep),
        "extended": EXTENDED,
        "requirements": REQUIREMENTS,
        "cached": CACHED,
        "nccl": [*(n for n in variables if n.startswith("NCCL_")), *nccl_axes(sweep)],
        "help_timeout_s": HELP_TIMEOUT_S,
        "at_once": _AT_ONCE,
    }
