"""A report on a stack as a terminal shows it."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tasks.domain.facts import Finding, PackageFacts, Severity, StackFacts, StackReport
from tasks.stack.changes import Change

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "dim"}


def report_view(report: StackReport) -> RenderableType:
    """Show the verdict, what the stack consists of, and each finding with its way out."""
    verdict = Text("fit", style="bold green") if report.fit else Text("unfit", style="bold red")
    title = Text.assemble((report.stack, "bold"), f" on {report.host}: ", verdict)
    title.append(f"  {report.fingerprint}", style="dim")
    parts: list[RenderableType] = [title]
    if not report.facts.error:
        parts.append(Padding(_facts(report.facts), (0, 2)))
    return Group(*parts, *(Padding(_finding(finding), (0, 2)) for finding in report.findings))


def changes_view(changes: Sequence[Change], since: str) -> RenderableType:
    """Show what is not as it was, before and after."""
    if not changes:
        return Padding(Text(f"nothing changed {since}", style="dim"), (0, 2))
    table = Table.grid(padding=(0, 2))
    for change in changes:
        row = (Text(change.name), Text(change.before, style="red"), Text(change.after))
        table.add_row(*row)
    return Padding(Group(Text(f"changed {since} (then, now):", style="bold"), table), (0, 2))


def _facts(facts: StackFacts) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, value in fact_lines(facts):
        table.add_row(Text(name, style="dim"), value)
    return table


def fact_lines(facts: StackFacts) -> Iterator[tuple[str, str]]:
    torch = facts.torch
    yield "python", f"{facts.python_version}, {facts.platform}, glibc {facts.system.glibc}"
    present = [p for p in facts.packages if p.imported and p.name != "sitecustomize"]
    yield "packages", ", ".join(map(_package, present)) or "none"
    built = [f"{name} {torch[name]}" for name in ("cuda", "cudnn", "nccl") if torch.get(name)]
    yield "torch", ", ".join(built) or "without CUDA"
    yield "launch flags", str(len(facts.options)) or "unknown"
    if facts.startup_files:
        yield "start-up", ", ".join(facts.startup_files.values())
    for model in facts.models:
        size = f"{model.shards} files, {model.bytes / 2**30:.1f} GiB"
        yield "model", f"{model.path}: {size if model.there else 'not there'}"
    if facts.gpus:
        first = facts.gpus[0]
        yield "GPUs", f"{len(facts.gpus)}x {first.name}, driver {first.driver_version}"


def _package(package: PackageFacts) -> str:
    return f"{package.name} {package.version or '(version unknown)'}"


def _finding(finding: Finding) -> RenderableType:
    text = Text()
    text.append(f"{finding.severity.value}: ", style=_STYLE[finding.severity])
    text.append(finding.summary)
    if finding.mode:
        text.append(f"  [{finding.mode}]", style="dim")
    for label, line in (("", finding.evidence), ("way out: ", finding.fix)):
        if line:
            text.append(f"\n    {label}{line}", style="dim" if not label else "")
    return text
