"""Is the load client a good instrument? Hold its report against a server that knows the truth.

    python -m benchmarks.load_client [CELL ...] [--rounds 3] [--start-ups 3]
        [--server-core 0] [--client-core 1] [--sglang PYTHON MODEL]

Needs a C compiler and two cores that nobody else uses. In each round every cell is run by
`sglang-sweep bench` and by a bare C reader in turn, so that whatever else the machine does meets
both. With `--sglang` (an interpreter that has SGLang, and a model's folder) SGLang's Python client
has its turn as well, in the closed loops. What is printed are the medians. CPU is that of the whole
process tree, less what a run of a single request takes; errors are of the percentiles that the
client reports.
"""

import argparse
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load_client.cells import CELLS, ONE, SMOKE, Cell
from benchmarks.load_client.clients import Cores, Programs, Run, compile_programs, run_client
from benchmarks.load_client.figures import figures_of, open_loop


@dataclass(frozen=True, slots=True)
class Times:
    """How often the cells are run, and a run of one request, which is all start-up."""

    rounds: int
    start_ups: int


Table = dict[tuple[str, str], list[dict[str, float]]]


def measure(
    cells: list[Cell], times: Times, cores: Cores, programs: Programs, folder: Path
) -> None:
    """Run every cell by every client so many times, interleaved, and print the medians."""
    start_up_s = start_up(programs, times.start_ups, cores, folder)
    table: Table = defaultdict(list)
    for number in range(times.rounds):
        for cell in cells:
            clients = clients_of(programs) if cell.floor else ["ours"]
            for client in clients[:: -1 if number % 2 else 1]:
                run = run_client(client, cell, programs, cores, folder)
                found = figures_of(run, start_up_s[client])
                if cell.rate is not None:
                    found |= open_loop(run, folder / "requests.parquet")
                table[cell.name, client].append(found)
                print(
                    f"  {number + 1}/{times.rounds} {cell.name} {client}: {remark(run)}", flush=True
                )
    for (cell_name, client), runs in table.items():
        print(f"\n{cell_name} {client}")
        for name in runs[0]:
            values = [run[name] for run in runs if name in run]
            print(
                f"  {name:<20} {statistics.median(values):>12,.2f}   "
                f"({min(values):,.2f} to {max(values):,.2f})"
            )
        for other in ("reader", "bench_serving"):
            if client == "ours" and (cell_name, other) in table:
                print(f"  {f'cpu_over_{other}':<20} {ratio(table, cell_name, other):>12.2f}")


def start_up(programs: Programs, rounds: int, cores: Cores, folder: Path) -> dict[str, float]:
    """CPU seconds of a run of one request, the median of some, by client."""
    found = {}
    for client in clients_of(programs):
        runs = [run_client(client, ONE, programs, cores, folder) for _ in range(rounds)]
        found[client] = statistics.median(run.cpu_s for run in runs)
        wall_s = statistics.median(run.wall_s for run in runs)
        print(f"one request, {client}: {wall_s:.2f} s, {found[client]:.2f} s of CPU", flush=True)
    return found


def clients_of(programs: Programs) -> list[str]:
    """Who is compared."""
    return ["reader", "ours", *(["bench_serving"] if programs.sglang else [])]


def ratio(table: Table, cell: str, other: str) -> float:
    """Our CPU over another's: the median of the rounds' ratios."""
    pairs = zip(table[cell, "ours"], table[cell, other], strict=True)
    return statistics.median(a["cpu_s_per_m"] / b["cpu_s_per_m"] for a, b in pairs)


def remark(run: Run) -> str:
    """What a run said of itself, and whether it counted what the server sent."""
    if run.client == "reader":
        return f"{run.report['tokens']} of {run.truth.tokens} tokens"
    if run.client == "bench_serving":
        return f"{run.report['total_output_tokens']} of {run.truth.tokens} tokens"
    counted = f"{run.report['total_output_tokens']} of {run.truth.tokens} tokens"
    failed = f"{run.report['failed']} of {run.truth.failed} failures, exit {run.exit_code}"
    reasons = "; ".join(run.report["reasons"])
    return f"{counted}, {failed}, {run.report['verdict']} {reasons}".rstrip()


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cells", nargs="*", help=", ".join(cell.name for cell in CELLS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--start-ups", type=int, default=3)
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--sglang", nargs=2, metavar=("PYTHON", "MODEL"))
    asked = parser.parse_args()
    known = (*CELLS, *SMOKE)
    unknown = set(asked.cells) - {cell.name for cell in known}
    if unknown:
        parser.error(f"no such cell: {', '.join(sorted(unknown))}")
    cells = [cell for cell in known if cell.name in asked.cells] if asked.cells else list(CELLS)
    with tempfile.TemporaryDirectory(prefix="load-client-") as folder:
        cores = Cores(asked.server_core, asked.client_core)
        programs = compile_programs(Path(folder), asked.sglang and tuple(asked.sglang))
        measure(cells, Times(asked.rounds, asked.start_ups), cores, programs, Path(folder))


if __name__ == "__main__":
    main()
