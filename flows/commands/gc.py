"""`sglang-sweep gc`: give the room of old raw requests back, after asking."""

import sys
import time

from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from flows.commands.report import store
from settings.quantities import parse_duration
from tasks.domain.errors import InputError
from tasks.results.disposal import RawRequests, choose, delete, raw_requests, read_size


def collect(older_than: str | None, keep: str | None, out: Console, *, yes: bool) -> None:
    """Show what would go, ask, and delete it."""
    if older_than is None and keep is None:
        raise InputError("gc", ["say --older-than, --keep or both: 30d, 20GB"])
    found, warnings = raw_requests(store())
    for warning in warnings:
        out.print(Text(f"! {warning}", style="yellow"))
    chosen = choose(
        found,
        now=time.time(),
        older_than_s=None if older_than is None else _age(older_than),
        keep_bytes=None if keep is None else read_size(keep),
    )
    if not chosen:
        out.print("nothing to delete")
        return
    for raw in chosen:
        out.print(Text(f"{raw.sweep_id}  {len(raw.files)} files, {_size(raw.size_bytes)}"))
    if yes or _asked(chosen, out):
        delete(chosen)
        out.print(f"deleted {_size(_total(chosen))} of raw requests; all summaries are kept")


def _asked(chosen: tuple[RawRequests, ...], out: Console) -> bool:
    if not sys.stdin.isatty():
        raise InputError("gc", ["nobody can be asked here: say --yes to delete these"])
    question = f"delete {_size(_total(chosen))} of raw requests? Summaries and reports stay"
    return Confirm.ask(question, console=out, default=False)


def _age(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError("gc", [f"--older-than: {text!r}: {error}"]) from error


def _total(chosen: tuple[RawRequests, ...]) -> int:
    return sum(raw.size_bytes for raw in chosen)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:,.2f} MB"
