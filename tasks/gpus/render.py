"""A plan of a cleaning as a terminal shows it."""

import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import PurePosixPath

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tasks.domain.facts import GpuFacts
from tasks.gpus.clean import Sight, unseen
from tasks.gpus.plan import Kill, Plan, Spare, age
from tasks.hosts.host import HostProcess


def plan_view(host: str, plan: Plan, sight: Sight, *, nested: bool = False) -> RenderableType:
    """Show who would be ended, who stays and why, and how much of each GPU is taken."""
    parts = [*_processes(host, plan), *_leftovers(sight), *_unseen(sight, nested)]
    return Group(*parts, *([_memory(sight.gpus)] if sight.gpus else []))


def _processes(host: str, plan: Plan) -> Iterable[RenderableType]:
    rows: list[Kill | Spare] = [*plan.kills, *plan.spares]
    if not rows:
        yield Text(f"{host}: nobody holds the GPUs, and nothing of ours runs there.")
        return
    yield Text(f"{host}: policy {plan.policy}", style="bold")
    rows.sort(key=lambda row: (_deed(row), row.reason, row.process.pid))
    for (deed, reason), judged in groupby(rows, key=lambda row: (_deed(row), row.reason)):
        yield Text.assemble((deed, _STYLES[deed]), f": {reason}")
        yield Padding.indent(_table([row.process for row in judged]), 2)


_STYLES = {"end": "red", "in the way": "yellow", "keep": "green"}


def _deed(row: Kill | Spare) -> str:
    match row:
        case Kill():
            return "end"
        case Spare(blocks=True):
            return "in the way"
        case _:
            return "keep"


def _table(processes: Sequence[HostProcess]) -> Table:
    """A line a process, its command cut where the terminal ends.

    Without a column for what none of them has: a container, memory on a GPU.
    """
    columns = {
        "pid": [str(process.pid) for process in processes],
        "user": [process.user for process in processes],
        "since (UTC)": [since(process) for process in processes],
        "MiB": [_mib(process) for process in processes],
        "in": [process.container for process in processes],
        "holds": [held(process.devices) for process in processes],
    }
    shown = {title: cells for title, cells in columns.items() if any(cells)}
    table = Table(box=None, pad_edge=False)
    for title, cells in shown.items():
        right = title in ("pid", "MiB")
        width = max(map(len, [title, *cells]))
        table.add_column(title, justify="right" if right else "left", min_width=width, no_wrap=True)
    table.add_column("command", overflow="ellipsis", no_wrap=True)
    for row, process in zip(zip(*shown.values(), strict=True), processes, strict=True):
        table.add_row(*map(Text, row), Text(_command(process)))
    return table


def _mib(process: HostProcess) -> str:
    return "" if process.memory_mib is None else f"{process.memory_mib:.0f}"


def since(process: HostProcess) -> str:
    """When a process began, as `11:38 (2 h)`; with the date where that was another day."""
    began = time.gmtime(process.started_at)
    now = time.gmtime(process.started_at + process.age_s)
    form = "%H:%M" if began[:3] == now[:3] else "%m-%d %H:%M"
    return f"{time.strftime(form, began)} ({age(process.age_s)})"


def _command(process: HostProcess) -> str:
    """The command without the path of its program, which is long and says the least."""
    program, _, rest = process.command.partition(" ")
    return f"{PurePosixPath(program).name} {rest}".strip()


def held(devices: Sequence[str]) -> str:
    """Device files in short: `0-3,7 ctl uvm` for /dev/nvidia0, /dev/nvidiactl and so on."""
    names = [PurePosixPath(device).name.removeprefix("nvidia").lstrip("-") for device in devices]
    numbers = sorted(int(name) for name in names if name.isdigit())
    others = [name for name in names if not name.isdigit()]
    return " ".join([*([_ranges(numbers)] if numbers else []), *others])


def _ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in ascending order, as `0-3,7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _leftovers(sight: Sight) -> Iterable[RenderableType]:
    for left in sight.leftovers:
        deed = "move aside" if left.kind == "build lock" else "remove"
        yield Text.assemble((deed, "red"), f": {left}")


def _unseen(sight: Sight, nested: bool) -> Iterable[RenderableType]:
    for app in sight.unseen:
        yield Text(f"not seen: {unseen(app, nested=nested)}", style="yellow")


def _memory(gpus: tuple[GpuFacts, ...]) -> RenderableType:
    taken = ", ".join(f"{gpu.index}: {gpu.memory_used_mib}" for gpu in gpus)
    return Text(f"MiB taken by GPU: {taken}", style="dim")
