"""Write `docs/failures.md` from the catalogue: `python -m tasks.failures.page [FILE]`."""

import sys
from pathlib import Path

from tasks.domain.diagnosis import Action, Remedy
from tasks.failures.catalogue import FAMILIES, MODES
from tasks.failures.catalogue.entry import Mode
from tasks.failures.explain import changes

_HEAD = """# Failure modes

Written by `python -m tasks.failures.page` from the catalogue in `tasks/failures/catalogue/`; change
it there.

`sglang-sweep` reads the log of a launch that failed, names the cause rather than its echo (a
`Killed`, a `SIGQUIT`, an `EOFError` or an NCCL time-out at the end usually follows something
earlier), and acts:

- **retry**: launch again with a remedy that is safe and reversible: a variable, a flag, a clean-up
  of what our own dead runs left, another port, waiting. Each remedy is used once for a cause, and
  two that undo each other end the trial.
- **prune**: this configuration can't run here; the sweep goes on. Configurations that must fail the
  same way are left out too, unlaunched, with the reason.
- **stop**: the host needs a person. Where another software stack is listed and may not have the
  fault (marked below), the sweep goes on with that one instead.

A remedy that changes what is measured marks the result `altered`. Nothing is ever installed,
downloaded or deleted, and no command that a log prints is run.
"""

_UNKNOWN = """## unknown

No entry explains the log. The evidence holds its most telling lines: the first exceptions and the
last words. **prune**: the sweep goes on without this configuration.
"""


def page() -> str:
    """Write the whole page."""
    parts = [_HEAD, _contents()]
    for family, modes in FAMILIES.items():
        parts.append(f"# {family}\n")
        parts += [_entry(mode) for mode in modes]
    return "\n".join([*parts, "# Everything else\n", _UNKNOWN])


def _contents() -> str:
    """Tabulate the modes, each linked to its entry."""
    rows = [
        f"| [{mode.name}](#{mode.name}) | {family} | {_actions(mode)} |"
        for family, modes in FAMILIES.items()
        for mode in modes
    ]
    head = f"{len(MODES)} modes:\n\n| mode | family | action |\n| --- | --- | --- |\n"
    return head + "\n".join(rows) + "\n"


def _actions(mode: Mode) -> str:
    """List the actions that a mode can have, its own first."""
    actions: list[Action] = [mode.action, *(variant.action for variant in mode.variants)]
    return " or ".join(dict.fromkeys(actions))


def _entry(mode: Mode) -> str:
    """Write one mode's entry."""
    lines = [f"## {mode.name}\n", f"{mode.explanation}\n"]
    phases = ", ".join(phase.value.replace("_", " ") for phase in mode.phases)
    lines.append(f"- Seen while: {phases}")
    lines.append(f"- Action: **{mode.action}**{_remedy(mode.remedy)}")
    lines += _variants(mode)
    if mode.check:
        lines.append(f"- The remedy helps where: {mode.check.replace('{home}', 'CUDA_HOME')}")
    if mode.stack_fault:
        lines.append("- Another software stack may not have it.")
    if mode.exit_codes:
        lines.append(
            f"- Without a word in the log: exit code {', '.join(map(str, mode.exit_codes))}"
        )
    if mode.stalls:
        stalls = ", ".join(phase.value.replace("_", " ") for phase in mode.stalls)
        lines.append(f"- A launch that makes no progress, without a word: while in {stalls}")
    if mode.signs:
        lines += ["- Decided by:", *(f"  - {_sign}" for _sign in _signs(mode))]
    return "\n".join(lines) + "\n"


def _remedy(remedy: Remedy | None) -> str:
    """Say what a remedy does, and whether it changes what is measured."""
    if remedy is None:
        return ""
    altered = "; marks the result `altered`" if remedy.alters else ""
    return f", {remedy.summary} ({changes(remedy)}){altered}"


def _variants(mode: Mode) -> list[str]:
    """Write the other ways out, each once."""
    lines = [
        f"- **{variant.action}** instead, where the log offers it{_remedy(variant.remedy)}"
        if variant.action is not mode.action or variant.remedy
        else ""
        for variant in mode.variants
    ]
    return [line for line in dict.fromkeys(lines) if line]


def _signs(mode: Mode) -> list[str]:
    """Quote the deciding patterns, with what must or mustn't stand around them."""
    shown = []
    for sign in mode.signs:
        text = _code(sign.pattern)
        text += f" near {_code(sign.near)}" if sign.near else ""
        text += f", without {_code(sign.away)} near it" if sign.away else ""
        text += f", not {_code(sign.unless)}" if sign.unless else ""
        shown.append(text)
    return list(dict.fromkeys(shown))


def _code(text: str) -> str:
    """Quote a pattern as code, whatever backticks it holds."""
    fence = "``" if "`" in text else "`"
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def main() -> None:
    """Print the page, or write it to the file that is named."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
