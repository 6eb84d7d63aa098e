"""Write variables into a stack's sitecustomize as a marked block, or take the block out again.

Sent to the host and run there by the stack's own interpreter: standard library alone, Python 3.8
on. Called with one JSON object: `env` (the variables, null to take the block out). Prints one JSON
object: `path` and `done` (`written`, `unchanged`, `removed`, `absent`), or `error`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Dict, Tuple  # noqa: UP035 - Python 3.8 on the host

BEGIN = "# >>> sglang-sweep "
END = "# <<< sglang-sweep <<<\n"
BACKUP = ".before-sglang-sweep"
CHECK = """
import json, os, sys, sitecustomize
print(json.dumps({name: os.environ.get(name) for name in sys.argv[1:]}))
"""
Env = Dict[str, str]  # noqa: UP006


class Refused(Exception):
    """The file is left as it is; says why in one line."""


def main() -> None:
    """Do what is asked, and tell it as JSON whatever happens."""
    try:
        path = place()
        answer = {"path": path, "done": apply(path, json.loads(sys.argv[1])["env"])}
    except Refused as refused:
        answer = {"error": str(refused)}
    except OSError as error:
        answer = {"error": f"{error.filename}: {error.strerror}"}
    print(json.dumps(answer))


def place() -> str:
    """The sitecustomize that this interpreter loads, or where it would look for one.

    Raises `Refused` for one outside a virtual environment: others load it, too.
    """
    spec = importlib.util.find_spec("sitecustomize")
    if spec is None or spec.origin is None:
        return os.path.join(sysconfig.get_path("purelib"), "sitecustomize.py")
    path, prefix = os.path.realpath(spec.origin), os.path.realpath(sys.prefix)
    if sys.prefix != sys.base_prefix and not path.startswith(prefix + os.sep):
        raise Refused(f"{path} is loaded by other environments, too; it is not ours to change")
    return path


def apply(path: str, env: Env | None) -> str:
    """Bring the file to what is wanted; what was done. Raises `Refused`, with nothing changed."""
    before = text_of(path)
    rest, block = split(path, before or "")
    wanted = render(env) if env else ""
    if wanted == block:
        return "unchanged" if env else "absent"
    if wanted:
        gap = "" if not rest or rest.endswith("\n") else "\n"
        after = rest + gap + wanted
        first = before is not None and not block
        replace(path, after, backup=first)
        fault = fault_of(env or {})
        if fault:
            restore(path, before)
            if first:
                os.remove(path + BACKUP)
            raise Refused(f"{path}: {fault}; it is as it was before")
        return "written"
    take_out(path, rest)
    return "removed"


def text_of(path: str) -> str | None:
    """The file's text, None where there is none. Raises `Refused` where it is no Python."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        ast.parse(text)
    except FileNotFoundError:
        return None
    except (SyntaxError, ValueError) as error:
        raise Refused(f"{path} can't be read as Python: {error}; mend it first") from error
    return text


def split(path: str, text: str) -> Tuple[str, str]:  # noqa: UP006
    """The text without our block, and the block.

    Raises `Refused` for a block that isn't as we wrote it: somebody has changed it since.
    """
    begins, ends = text.count(BEGIN), text.count(END)
    if not begins and not ends:
        return text, ""
    start, stop = text.find(BEGIN), text.find(END) + len(END)
    block = text[start:stop]
    head, _, body = block.partition("\n")
    if (begins, ends) != (1, 1) or start > stop or digest(body) not in head:
        raise Refused(f"{path}: the sglang-sweep block was changed by hand; take it out yourself")
    return text[:start] + text[stop:], block


def render(env: Env) -> str:
    """The block: what a process has in its own environment is stronger."""
    lines = [f"    {name!r}: {value!r},\n" for name, value in sorted(env.items())]
    body = (
        "import os as _sglang_sweep_os\n\n"
        "for _sglang_sweep in {\n" + "".join(lines) + "}.items():\n"
        "    _sglang_sweep_os.environ.setdefault(*_sglang_sweep)\n" + END
    )
    return f"{BEGIN}{digest(body)} (sglang-sweep validate HOST --unpersist removes it) >>>\n{body}"


def digest(body: str) -> str:
    """A block's hash, by which it is known to be as it was written."""
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def replace(path: str, text: str, backup: bool) -> None:
    """Put a text in the file's place, whole or not at all, keeping its owner and mode."""
    beside = f"{path}.{os.getpid()}"
    if backup:
        shutil.copy2(path, path + BACKUP)
    try:
        with open(beside, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            shutil.copymode(path, beside)
            status = os.stat(path)
            os.chown(beside, status.st_uid, status.st_gid)
        os.replace(beside, path)
    finally:
        if os.path.exists(beside):
            os.remove(beside)


def restore(path: str, before: str | None) -> None:
    """Put back what was there."""
    if before is None:
        os.remove(path)
    else:
        replace(path, before, backup=False)


def take_out(path: str, rest: str) -> None:
    """Leave the file as it was without the block, or as somebody has changed it since."""
    kept = path + BACKUP
    before = text_of(kept)
    if before is not None and before.rstrip("\n") == rest.rstrip("\n"):
        os.replace(kept, path)
    elif before is None and not rest.strip():
        os.remove(path)
    else:
        replace(path, rest, backup=False)


def fault_of(env: Env) -> str:
    """Why the interpreter doesn't start as it should with the block; nothing where it does."""
    clean = {name: value for name, value in os.environ.items() if name not in env}
    command = [sys.executable, "-c", CHECK, *env]
    try:
        done = subprocess.run(command, env=clean, capture_output=True, timeout=120, text=True)
    except subprocess.TimeoutExpired:
        return "Python doesn't start within 120 s with it"
    if done.returncode or "Error in sitecustomize" in done.stderr:
        return (
            f"Python doesn't start with it: {(done.stderr.strip() or 'no word').splitlines()[-1]}"
        )
    found = json.loads(done.stdout.splitlines()[-1])
    others = sorted(name for name, value in env.items() if found[name] != value)
    return f"it sets {', '.join(others)} otherwise itself" if others else ""


if __name__ == "__main__":
    main()
