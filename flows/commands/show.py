"""`sglang-sweep settings`: what is in force, and where each value comes from."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, SecretStr
from rich.console import Console
from rich.table import Table

from settings.application import load

Row = tuple[str, object, str]


def settings_rows() -> list[Mapping[str, object]]:
    """Each setting with its value and source."""
    return [{"setting": name, "value": value, "from": source} for name, value, source in _rows()]


def print_settings(console: Console) -> None:
    """A table of every setting in force."""
    table = Table("setting", "value", "from")
    for name, value, source in _rows():
        table.add_row(name, str(value), source, style="dim" if source == "default" else "")
    console.print(table)


def _rows() -> Iterator[Row]:
    settings, origin = load()
    for path, value in _leaves(settings, ()):
        yield ".".join(path), value, origin.of(path)


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
