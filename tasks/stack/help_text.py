"""Read the launch options out of what `python -m sglang.launch_server --help` prints."""

import re

from tasks.domain.facts import Flag

_OPTION = re.compile(r" {1,4}-{1,2}[A-Za-z]")
_NAME = re.compile(r"(?:^|, )--([A-Za-z][\w.-]*)")
_CHOICES = re.compile(r"\{([^}]+)\}")


def parse_help(text: str) -> tuple[Flag, ...]:
    """Every option of argparse's list, in its order; empty where the text holds no such list.

    The usage before the list is passed over: it may be wrapped, and it lacks the aliases.
    """
    _, _, listed = text.partition("\noptions:\n")
    if not listed:
        _, _, listed = text.partition("\noptional arguments:\n")  # argparse before Python 3.10
    lines = [line for line in listed.splitlines() if _OPTION.match(line)]
    flags = [_flag(re.split(r"\s{2,}", line.strip(), maxsplit=1)[0]) for line in lines]
    return tuple(flag for flag in flags if flag.names)


def _flag(definition: str) -> Flag:
    """Read `--tp-size TP_SIZE, --tensor-parallel-size TP_SIZE` or `--log-level {a,b}`.

    The last name's value stands for all: Python 3.13 writes it there only.
    """
    names = tuple(match.group(1).replace("-", "_") for match in _NAME.finditer(definition))
    value = re.split(r"--[A-Za-z][\w.-]*", definition)[-1].strip()
    choices = _CHOICES.search(value)
    return Flag(
        names,
        takes_value=bool(value),
        needs_value=bool(value) and not value.startswith("["),
        choices=tuple(choices.group(1).split(",")) if choices else (),
    )
