"""How long the report of 200 trials takes, and how large it is.

    python -m benchmarks.report [--rounds 3] [--store FOLDER]

Writes an invented night into a store (a temporary one, unless told otherwise) and has the command
write its report, each time in a process of its own, as a user would. To reach: 10 s and 5 MB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report.night import write_store


def main() -> None:
    """Write the store, then the report a few times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = asked.store or Path(folder)
        sweep_id = write_store(store)
        for _ in range(asked.rounds):
            print(_timed(store, sweep_id))


def _timed(store: Path, sweep_id: str) -> str:
    environment = {**os.environ, "SGLANG_SWEEP_STORE": str(store.resolve())}
    command = [sys.executable, "-c", "from flows.cli import main; main()", "report", sweep_id]
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall_s, after = time.perf_counter() - started, os.times()
    cpu_s = after.children_user + after.children_system
    cpu_s -= before.children_user + before.children_system
    size = (store / sweep_id / "report.html").stat().st_size
    return f"{wall_s:5.1f} s, {cpu_s:.1f} s of CPU, {size / 1e6:.2f} MB"


if __name__ == "__main__":
    main()
