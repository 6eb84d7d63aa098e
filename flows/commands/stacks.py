"""`validate`: the stacks of a host, and what changed since a sweep measured them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from settings.application import Settings
from tasks.domain.facts import StackReport
from tasks.hosts.connect import connect
from tasks.results.records import SweepRecord
from tasks.results.store import find_sweep, load_sweep_record
from tasks.stack.changes import Change, changes_between
from tasks.stack.render import changes_view, report_view
from tasks.stack.validate import as_json, validate


@dataclass(frozen=True, slots=True)
class Judged:
    """A stack's report; `changes` is None where it is compared with nothing."""

    report: StackReport
    changes: tuple[Change, ...] | None = None
    unknown_then: bool = False


async def validate_host(name: str, settings: Settings, against: str | None) -> list[Judged]:
    """Judge every stack that a host lists; as the sweep asked for, where one is named.

    Raises `InputError` where the store has no such sweep.
    """
    record = _record(settings, against)
    async with connect(name, settings.host(name)) as host:
        reports = await validate(host, record.sweep if record else None)
    return [_compared(report, record) for report in reports]


def _record(settings: Settings, against: str | None) -> SweepRecord | None:
    if against is None:
        return None
    return load_sweep_record(find_sweep(Path(settings.store), against))


def _compared(report: StackReport, record: SweepRecord | None) -> Judged:
    """Compare with the last that the sweep knew of the same interpreter."""
    if record is None:
        return Judged(report)
    then = [each for each in record.stacks if each.stack == report.stack]
    if not then:
        return Judged(report, (), unknown_then=True)
    return Judged(report, changes_between(then[-1], report))


def stacks_json(judged: Sequence[Judged]) -> list[Mapping[str, object]]:
    """The judgements for machines; `changes` only where something was compared."""
    return [_json(each) for each in judged]


def _json(each: Judged) -> Mapping[str, object]:
    if each.changes is None:
        return as_json(each.report)
    changes = [{"name": c.name, "before": c.before, "after": c.after} for c in each.changes]
    return {**as_json(each.report), "changes": None if each.unknown_then else changes}


def print_stacks(out: Console, judged: Sequence[Judged], against: str | None) -> None:
    """Print a page a stack."""
    for each in judged:
        out.print(report_view(each.report))
        if each.unknown_then:
            out.print(Text(f"  {against} knew nothing of this stack", style="yellow"))
        elif each.changes is not None:
            out.print(changes_view(each.changes, f"since {against}"))
