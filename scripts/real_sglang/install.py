"""Install the real SGLang for CPU, with a tiny model, in an environment of its own.

    python3 scripts/real_sglang/install.py [--root DIR] [--python PYTHON] [--json]

Everything goes below DIR (`.real-sglang` in the project unless said otherwise); nothing outside it
is touched but pip's cache. Three steps, each skipped while its inputs are the same as when it last
succeeded: the environment (`DIR/venv`, 3 GB), the model (`DIR/models/tiny`, 0.9 MB), and a check
that SGLang imports. Progress goes to stderr, the output of pip and of the steps to
`DIR/install.log`, and with `--json` the definition of the host to stdout. Exit status 1 says, in
one line, why this machine can't have it and what to do about it.

SGLang itself is unmodified. Five things about it are not obvious:

- `sgl_kernel` is CUDA-only and imported whatever the device: `shim/` stands in for it.
- torchvision 0.15.2 is old on purpose: newer ones refuse to import beside a CPU build of torch. It
  has no wheel for Python 3.12, hence 3.11.
- `TORCHDYNAMO_DISABLE=1`: one function of SGLang 0.5.9 is compiled with a C++ compiler at the first
  request, which then takes 20 s instead of 0.2 s on two cores.
- `OMP_NUM_THREADS=1`: with two threads on two shared cores the threads wait for each other, and one
  stream gets 34 to 83 tokens a second instead of 260 to 350.
- SGLang 0.5.9, not a later one: on two cores it serves 10 s after the launch, 0.5.23 after 21 s.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
SHIM = HERE / "shim"
REQUIREMENTS = HERE / "requirements.txt"
MODEL_SCRIPT = HERE / "make_tiny_model.py"

WITHOUT_DEPENDENCIES = ("sglang==0.5.9", "torchvision==0.15.2")
PYTHON_VERSION = (3, 11)
NEEDED_BYTES = 4 * 10**9

# What every process of the server needs. No CUDA device is visible, so that a CUDA build of torch
# on a machine with GPUs leaves them alone; the hub is never asked.
SERVER_ENVIRONMENT = {
    "PYTHONPATH": str(SHIM),
    "SGLANG_USE_CPU_ENGINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
}


class CannotInstall(Exception):
    """Say why this machine can't have the real SGLang, and the way out, in one line."""


@dataclass(frozen=True)
class Place:
    """Name every path below the root folder."""

    root: Path

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.root / "models" / "tiny"

    @property
    def log(self) -> Path:
        return self.root / "install.log"

    @property
    def stamps(self) -> Path:
        return self.root / "stamps.json"


@dataclass(frozen=True)
class Step:
    """One thing to do, and a digest of all that its outcome depends on."""

    name: str
    digest: str
    result: Path
    act: Callable[[], None]


def digest_of(*inputs: str | Path) -> str:
    """Hash texts and the contents of files, in order."""
    total = hashlib.sha256()
    for item in inputs:
        content = item.read_bytes() if isinstance(item, Path) else item.encode()
        total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()


def say(text: str) -> None:
    """Print a progress line on stderr."""
    print(f"real sglang: {text}", file=sys.stderr, flush=True)


def last_complaint(log: str) -> str:
    """Find the line that says what went wrong: pip's first error, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    return (errors or lines[-1:] or ["no output"])[0]


def run(place: Place, command: Sequence[str], failure: str) -> None:
    """Run a command with its output appended to the log; `failure` names the way out."""
    with place.log.open("a+", encoding="utf-8", errors="replace") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        start = log.tell()
        environment = os.environ | SERVER_ENVIRONMENT
        status = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False
        ).returncode
        if status != 0:
            log.seek(start)
            cause = last_complaint(log.read())
            raise CannotInstall(f"{cause} ({failure}; all of it in {place.log})")


def python_version(python: str) -> tuple[int, int]:
    """Ask an interpreter for its major and minor version."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotInstall(f"{python} does not run ({error}); give another --python") from error
    return int(answer[0]), int(answer[1])


def choose_python(asked: str | None) -> str:
    """Take the interpreter that was asked for, else the running one, else `python3.11`."""
    wanted = ".".join(map(str, PYTHON_VERSION))
    if asked is not None:
        found = python_version(asked)
        if found == PYTHON_VERSION:
            return asked
        raise CannotInstall(f"{asked} is Python {found[0]}.{found[1]}; this needs {wanted}")
    if sys.version_info[:2] == PYTHON_VERSION:
        return sys.executable
    other = shutil.which(f"python{wanted}")
    if other is None:
        running = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise CannotInstall(
            f"this is Python {running} and no python{wanted} is on PATH; install one, "
            "or name it with --python"
        )
    return other


def check_machine(root: Path) -> None:
    """Refuse at once what pip would refuse after minutes, or fill the disk with."""
    if sys.platform != "linux":
        raise CannotInstall(f"SGLang serves on Linux, this is {sys.platform}; use a Linux machine")
    try:
        root.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(root).free
    except OSError as error:
        raise CannotInstall(f"{error}; choose another folder with --root") from error
    if free_bytes < NEEDED_BYTES:
        raise CannotInstall(
            f"{root} has {free_bytes / 1e9:.1f} GB free and this takes about "
            f"{NEEDED_BYTES / 1e9:.0f} GB; free some, or choose another folder with --root"
        )


def make_environment(place: Place, asked_python: str | None) -> None:
    """Make the virtual environment afresh and install the requirements into it."""
    check_machine(place.root)
    python = choose_python(asked_python)
    say(f"installing 3 GB with {python}; this takes minutes")
    run(
        place,
        [python, "-m", "venv", "--clear", str(place.venv)],
        "this Python lacks the venv module or ensurepip; Debian has them in python3.11-venv",
    )
    pip = [str(place.python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    failure = "pip failed; it needs a package index, by network or as pip is configured"
    run(place, [*pip, "-r", str(REQUIREMENTS)], failure)
    run(place, [*pip, "--no-deps", *WITHOUT_DEPENDENCIES], failure)


def make_model(place: Place) -> None:
    """Make the model with the environment's own torch and transformers."""
    place.model.mkdir(parents=True, exist_ok=True)
    run(place, [str(place.python), str(MODEL_SCRIPT), str(place.model)], "the model was not made")


def check_import(place: Place) -> None:
    """Import what a launch imports first."""
    code = "import sglang.srt.server_args"
    run(place, [str(place.python), "-c", code], "SGLang was installed and does not import")


def steps(place: Place, asked_python: str | None) -> list[Step]:
    """List the steps in order; an environment that moved or was rebuilt redoes all of them.

    By which Python of the one version it was made is no input: whoever names another one, or none,
    doesn't pay for it again.
    """
    environment = digest_of(REQUIREMENTS, *WITHOUT_DEPENDENCIES, str(place.venv))
    model = digest_of(environment, MODEL_SCRIPT)
    check = digest_of(environment, *sorted(SHIM.rglob("*.py")), str(SHIM))
    return [
        Step("venv", environment, place.python, lambda: make_environment(place, asked_python)),
        Step("model", model, place.model / "config.json", lambda: make_model(place)),
        Step("check", check, place.python, lambda: check_import(place)),
    ]


def read_stamps(path: Path) -> dict[str, str]:
    """Read which inputs each step last succeeded with; a missing or broken file is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_stamps(path: Path, stamps: dict[str, str]) -> None:
    """Replace the stamps as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(stamps, indent=1), encoding="utf-8")
    beside.replace(path)


def install(place: Place, asked_python: str | None) -> None:
    """Do the steps whose inputs changed or whose result is gone."""
    stamps = read_stamps(place.stamps)
    for step in steps(place, asked_python):
        if stamps.get(step.name) == step.digest and step.result.exists():
            continue
        say(f"{step.name} ...")
        # On disk too: a step that is killed halfway must not be taken for one that succeeded.
        stamps.pop(step.name, None)
        write_stamps(place.stamps, stamps)
        step.act()
        stamps[step.name] = step.digest
        write_stamps(place.stamps, stamps)
    say(f"ready in {place.root}")


def host_definition(place: Place) -> dict[str, object]:
    """Describe this host as the settings do, and the model to serve on it.

    `devices` matches nothing: there is no GPU whose holders could be in the way.
    """
    return {
        "stacks": [str(place.python)],
        "launch": ["-m", "sglang.launch_server"],
        "devices": str(place.root / "dev" / "nvidia*"),
        "dedicated": False,
        "run_folder": str(place.root / "run"),
        "env": SERVER_ENVIRONMENT,
        "model_path": str(place.model),
    }


def read_command_line() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Install the real SGLang for CPU, with a model.")
    parser.add_argument("--root", type=Path, default=PROJECT / ".real-sglang", metavar="DIR")
    parser.add_argument("--python", help="a Python 3.11 to make the environment from")
    parser.add_argument("--json", action="store_true", help="print the definition of the host")
    return parser.parse_args()


def give_up(error: CannotInstall) -> NoReturn:
    """Say the reason on one line and exit with status 1."""
    say(f"can't be installed here: {' '.join(str(error).split())}")
    raise SystemExit(1)


def main() -> None:
    """Install, and describe the host if asked to."""
    options = read_command_line()
    place = Place(options.root.resolve())
    try:
        install(place, options.python)
    except CannotInstall as error:
        give_up(error)
    if options.json:
        print(json.dumps(host_definition(place), indent=2))


if __name__ == "__main__":
    main()
