"""A plan of a cleaning as a terminal shows it."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tasks.domain.facts import GpuFacts
from tasks.gpus.plan import Kill, Plan, Spare, age


def plan_table(host: str, plan: Plan, gpus: tuple[GpuFacts, ...]) -> RenderableType:
    """Show who would be ended, who stays, and how much of each GPU is taken."""
    return Group(_processes(host, plan), *([_memory(gpus)] if gpus else []))


def _processes(host: str, plan: Plan) -> RenderableType:
    rows: list[Kill | Spare] = [*plan.kills, *plan.spares]
    if not rows:
        return Text(f"{host}: nobody holds the GPUs, and nothing of ours is left there.")
    table = Table(title=f"{host}: policy {plan.policy}", title_justify="left")
    for column in ("", "pid", "user", "age", "command", "why"):
        table.add_column(column, justify="right" if column in ("pid", "age") else "left")
    for row in rows:
        process = row.process
        command = Text(process.command, overflow="ellipsis", no_wrap=True)
        table.add_row(
            _deed(row), str(process.pid), process.user, age(process.age_s), command, row.reason
        )
    return table


def _deed(row: Kill | Spare) -> Text:
    match row:
        case Kill():
            return Text("end", style="red")
        case Spare(blocks=True):
            return Text("in the way", style="yellow")
        case _:
            return Text("keep", style="green")


def _memory(gpus: tuple[GpuFacts, ...]) -> RenderableType:
    taken = ", ".join(f"{gpu.index}: {gpu.memory_used_mib}" for gpu in gpus)
    return Text(f"MiB taken by GPU: {taken}", style="dim")
