"""The simulated host that the demo sweeps on, with settings of its own."""

import json
import subprocess
import sys
from pathlib import Path

from settings.sweep import Sweep
from settings.sweep_file import read_sweep
from tasks.domain.errors import InputError

PROJECT = Path(__file__).resolve().parents[1]
EXAMPLES = PROJECT / "examples"
SCENARIO = EXAMPLES / "demo-scenario.toml"


def prepare(folder: Path) -> Path:
    """Create the simulated host and a settings file that knows it, and give the file's path.

    Raises `InputError` where the folder can't be used.
    """
    command = [sys.executable, "-m", "simulator.host"]
    made = subprocess.run(
        [*command, "--root", str(folder / "host"), "--scenario", str(SCENARIO)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise InputError("demo", [made.stderr.strip().splitlines()[-1]])
    config = folder / "sglang-sweep.toml"
    store = json.dumps(str(folder / "sweeps"))
    config.write_text(f'store = {store}\nlease = "15s"\n\n{made.stdout}')
    return config


def demo_sweep(folder: Path) -> Sweep:
    """The sweep of the demo, with the simulated host's models."""
    models = folder / "host" / "models"
    return read_sweep(
        EXAMPLES / "demo.yaml",
        [
            f"server.model_path={models / 'kimi'}",
            f"speculative.draft_model_path={models / 'kimi-eagle3'}",
        ],
    )
