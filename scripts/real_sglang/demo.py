"""Run `examples/cpu-tiny.yaml` on the real SGLang, on this machine's CPU.

    python scripts/real_sglang/demo.py [--root DIR] [--python PYTHON]

Installs SGLang below DIR first, which is skipped when it is there. Exit status as of
`sglang-sweep run`; 1 with a line that says why, where this machine can't have it.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]


def main() -> int:
    """Install, write the settings that know the host, run the sweep."""
    parser = argparse.ArgumentParser(description="A sweep on the real SGLang, on a CPU.")
    parser.add_argument("--root", type=Path, default=PROJECT / ".real-sglang")
    parser.add_argument("--python", default=sys.executable, help="a Python 3.11")
    asked = parser.parse_args()
    root = asked.root.resolve()
    install = [sys.executable, str(HERE / "install.py"), "--json", "--root", str(root)]
    made = subprocess.run([*install, "--python", asked.python], stdout=subprocess.PIPE, check=False)
    if made.returncode:
        return made.returncode
    host = json.loads(made.stdout)
    model = host.pop("model_path")
    config = root / "sglang-sweep.toml"
    config.write_text(_settings(root / "sweeps", host))
    command = [str(Path(sys.executable).with_name("sglang-sweep")), "run"]
    sweep = [str(PROJECT / "examples" / "cpu-tiny.yaml"), "--set", f"server.model_path={model}"]
    environment = {**os.environ, "SGLANG_SWEEP_CONFIG": str(config)}
    print(f"settings: export SGLANG_SWEEP_CONFIG={config}", file=sys.stderr)
    return subprocess.run([*command, *sweep], env=environment, cwd=PROJECT, check=False).returncode


def _settings(store: Path, host: dict[str, object]) -> str:
    """A settings file with one host; JSON strings and lists of strings are TOML too."""
    env = host.pop("env", {})
    lines = [f"store = {json.dumps(str(store))}", "", "[hosts.cpu]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in host.items()]
    lines += ["", "[hosts.cpu.env]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in dict(env).items()]  # type: ignore[call-overload]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
