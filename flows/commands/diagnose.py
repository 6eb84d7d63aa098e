"""`sglang-sweep diagnose`: the cause of a failure, from a log."""

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tasks.domain.diagnosis import Diagnosis
from tasks.domain.errors import ExitStatus, InputError
from tasks.failures.diagnosis import judge_lines
from tasks.failures.explain import as_json as diagnosis_json

_COLOURS = {"retry": "green", "prune": "yellow", "stop": "red"}


def run_diagnose(log: str, exit_code: int | None, out: Console, *, as_json: bool) -> int:
    """Diagnose a log file, or standard input, streaming; finding a failure is fine."""
    judged = judge_lines(_lines(log), exit_code)
    diagnosis = judged.diagnosis
    if as_json:
        import json

        sys.stdout.write(json.dumps(diagnosis_json(diagnosis), indent=2) + "\n")
    elif diagnosis is None and judged.phase is None:
        out.print("[yellow]no known failure, and no line of a server[/]: is this an SGLang log?")
        return ExitStatus.NOTHING_FEASIBLE
    elif diagnosis is None:
        out.print("[green]healthy[/]: no failure in this log")
    else:
        _print(diagnosis, out)
    return ExitStatus.OK


def _lines(log: str) -> Iterator[str]:
    """The log's lines, whatever bytes it holds."""
    if log == "-":
        if sys.stdin is None:
            raise InputError("-", ["there is no standard input"])
        yield from _decoded(sys.stdin.buffer)
        return
    try:
        with Path(log).open("rb") as file:
            yield from _decoded(file)
    except OSError as error:
        raise InputError(log, [f"can't be read: {error.strerror}"]) from error


def _decoded(file: object) -> Iterator[str]:
    for line in file:  # type: ignore[attr-defined]
        yield line.decode(errors="replace")


def _print(diagnosis: Diagnosis, out: Console) -> None:
    """A short page: the cause, what shows it, the cure."""
    colour = _COLOURS[diagnosis.action.value]
    out.print(Text(diagnosis.mode, style=f"bold {colour}"), Text(f"in phase {diagnosis.phase}"))
    out.print(Text(diagnosis.explanation), soft_wrap=True)
    for evidence in diagnosis.evidence:
        out.print(Text(f"{evidence.line:>6} | {evidence.text}", style="dim"), soft_wrap=True)
    remedy = f": {diagnosis.remedy.summary}" if diagnosis.remedy else ""
    out.print(Text(f"action: {diagnosis.action}{remedy}", style=colour), soft_wrap=True)
    if diagnosis.docs:
        out.print(Text(f"more: {diagnosis.docs}", style="dim"), soft_wrap=True)
