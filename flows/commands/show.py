"""`sglang-sweep settings`: what is in force, and where each value comes from."""

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, SecretStr
from rich.console import Console
from rich.table import Table
from rich.text import Text

from settings.application import load

Row = tuple[str, object, str]
_SECRET_NAME = re.compile("TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|_KEY$|^KEY$", re.IGNORECASE)
_HIDDEN = "**********"


def settings_rows() -> list[Mapping[str, object]]:
    """Each setting with its value and source."""
    return [{"setting": name, "value": value, "from": source} for name, value, source in _rows()]


def print_settings(console: Console) -> None:
    """A table of every setting in force."""
    table = Table("setting", "value", "from")
    for name, value, source in _rows():
        style = "dim" if source == "default" else ""
        table.add_row(Text(name), Text(str(value)), Text(source), style=style)
    console.print(table)


def _rows() -> Iterator[Row]:
    settings, origin = load()
    for path, value in _leaves(settings, ()):
        secret = "env" in path and _SECRET_NAME.search(path[-1])
        yield ".".join(path), _HIDDEN if secret else value, origin.of(path)


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value with its key path; secrets stay what they are."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(getattr(value, name), (*path, name))
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, SecretStr):
        yield path, str(value)
    else:
        yield path, list(value) if isinstance(value, tuple) else value
