"""Run one client against the server and read what it reports."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load_client.cells import Cell
from benchmarks.load_client.truth import Truth, truth_of
from settings.workload import Workload
from tasks.load.bench_serving import Foreign
from tasks.load.target import Level, Target


@dataclass(frozen=True, slots=True)
class Cores:
    """Where server and client are pinned."""

    server: int
    client: int


@dataclass(frozen=True, slots=True)
class Programs:
    """The compiled server and reader; an interpreter with SGLang, and a model with a tokenizer."""

    server: Path
    reader: Path
    sglang: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One client's run of one cell: CPU and wall seconds of the whole process tree, its report."""

    client: str
    cpu_s: float
    wall_s: float
    exit_code: int
    report: dict[str, Any]
    truth: Truth
    server: dict[str, Any]


def compile_programs(folder: Path, sglang: tuple[str, str] | None) -> Programs:
    """Compile the server and the reader, which lie beside this file."""
    here = Path(__file__).parent
    for name in ("server", "reader"):
        command = ["cc", "-O2", "-o", str(folder / name), str(here / f"{name}.c")]
        subprocess.run(command, check=True)
    return Programs(folder / "server", folder / "reader", sglang)


def run_client(client: str, cell: Cell, programs: Programs, cores: Cores, folder: Path) -> Run:
    """Start the server, run the client, end the server, and hold one against the other."""
    log = folder / "truth"
    serve = [str(programs.server), "--log", str(log), *cell.server]
    server = subprocess.Popen(
        ["taskset", "-c", str(cores.server), *serve], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    port = int(server.stdout.readline())
    command = command_of(client, cell, programs, port, folder)
    started = time.monotonic()
    with (folder / "report").open("wb") as report:
        process = subprocess.Popen(
            ["taskset", "-c", str(cores.client), *command],
            stdout=report,
            stderr=None if os.environ.get("LOAD_CLIENT_VERBOSE") else subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - started
    server.terminate()
    told = server.communicate()[0]
    return Run(
        client=client,
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=wall_s,
        exit_code=process.returncode,
        report=json.loads((folder / WRITES.get(client, "report")).read_text()),
        truth=truth_of(log, spared=0 if client == "reader" else 1),
        server=json.loads(told),
    )


WRITES = {"bench_serving": "theirs.jsonl"}
"""The file with a client's report, where that isn't what it prints."""


def command_of(client: str, cell: Cell, programs: Programs, port: int, folder: Path) -> list[str]:
    """The command line of one client for one cell."""
    match client:
        case "reader":
            return reader(programs, port, cell)
        case "bench_serving":
            assert programs.sglang is not None
            return bench_serving(*programs.sglang, port, cell, folder)
    return ours(port, cell, folder)


def bench_serving(python: str, model: str, port: int, cell: Cell, folder: Path) -> list[str]:
    """The command of SGLang's Python client, with the flags that `engine: sglang` gives it."""
    out = folder / WRITES["bench_serving"]
    out.unlink(missing_ok=True)
    workload = Workload(
        name="cell",
        concurrency=(cell.streams,),
        requests=cell.requests,
        input_len=32,
        output_len=cell.tokens,
    )
    target, level = Target(f"http://127.0.0.1:{port}"), Level(concurrency=cell.streams)
    return Foreign(python).command(target, model, workload, level, 1, str(out))


def reader(programs: Programs, port: int, cell: Cell) -> list[str]:
    """The command of the bare reader."""
    words = (port, cell.streams, cell.requests, cell.tokens)
    return [str(programs.reader), *map(str, words)]


def ours(port: int, cell: Cell, folder: Path) -> list[str]:
    """The command of `sglang-sweep bench`, in one process since it has one core."""
    command = [str(Path(sys.executable).parent / "sglang-sweep"), "bench"]
    command += [f"http://127.0.0.1:{port}", "--backend", cell.backend, "--json"]
    command += ["--input-len", "32", "--output-len", str(cell.tokens)]
    command += ["--requests", str(cell.requests), "--processes", "1"]
    if cell.rate is None:
        return [*command, "--concurrency", str(cell.streams)]
    return [*command, "--request-rate", str(cell.rate), "--out", str(folder / "requests.parquet")]
