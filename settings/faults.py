"""Turn what pydantic says into one line per fault: key path, value, what is allowed, way out."""

import reprlib
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from settings.nearest import suggest

Path = tuple[str, ...]

_SHOWN_CHARACTERS = 60
_bounded = reprlib.Repr()
_bounded.maxlevel, _bounded.maxstring, _bounded.maxother = 4, 80, 80


def describe(error: ValidationError, model: type[BaseModel]) -> list[tuple[Path, str]]:
    """One (key path, line) per fault of a model's input; duplicates of a union are merged."""
    grouped: dict[Path, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        grouped.setdefault(_written_path(detail["loc"], model), []).append(detail)
    return [
        (path, line)
        for path, details in grouped.items()
        if not _explained_below(path, grouped)
        for line in _lines(details, path, model)
    ]


def _explained_below(path: Path, faulty: Iterable[Path]) -> bool:
    """Whether the fault is that of something within; a union complains of both."""
    return any(len(other) > len(path) and other[: len(path)] == path for other in faulty)


def _lines(details: list[ErrorDetails], path: Path, model: type[BaseModel]) -> list[str]:
    """The lines on one key; a union's members each complain, but it is one fault."""
    where = ".".join(path)
    detail = details[0]
    shown = "(hidden)" if _is_secret(path, model) else _shown(detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            valid = _fields_at(path[:-1], model)
            hint = suggest(path[-1], valid) or f"; allowed are {', '.join(sorted(valid))}"
            return [f"{where}: no such key{hint}"]
        case "missing":
            return [f"{where}: missing; it must be given"]
        case "value_error":
            return _own_words(detail, where, shown)
        case "model_type":
            keys = ", ".join(_fields_at(path, model))
            return [f"{where}: {shown} is not valid: expected keys such as {keys}"]
        case _:
            messages = dict.fromkeys(_plain(each["msg"]) for each in details)
            return [f"{where}: {shown} is not valid: {_joined(messages)}"]


def _own_words(detail: ErrorDetails, where: str, shown: str) -> list[str]:
    """Our own validators: several faults a line each; one that begins with a dot is further in."""
    message = detail["msg"].removeprefix("Value error, ")
    value = f"{shown}: " if isinstance(detail["input"], str | int | float) else ""
    prefix = f"{where}: " if where else ""
    return [
        f"{where}{line}" if line.startswith((".", ":")) else f"{prefix}{value}{line}"
        for line in message.splitlines()
    ]


def _is_secret(path: Path, model: type[BaseModel]) -> bool:
    """Whether a value may be a secret: one that is declared so, or a variable."""
    if any(step == "env" or step.startswith("env.") for step in path):
        return True
    kind = _kind_at(path, model)
    return SecretStr in (kind, *typing.get_args(kind))


def _written_path(location: Iterable[str | int], model: type[BaseModel]) -> Path:
    """The key path as a person wrote it: without the names of union members."""
    path: list[str] = []
    kind: Any = model
    for step in location:
        inner = _inside(kind, step)
        if inner is None:
            continue
        path.append(str(step))
        kind = inner
    return tuple(path)


def _inside(kind: Any, step: str | int) -> Any:  # noqa: ANN401 - annotations have no type
    """The annotation behind one step of a path, None where the step names a union member."""
    if kind is Any:
        return None
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is typing.Annotated:
        return _inside(arguments[0], step)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(step))
        return field.annotation if field else Any
    if origin is dict:
        return arguments[1]
    if origin in (list, tuple):
        return arguments[0] if isinstance(step, int) else None
    found = (_inside(argument, step) for argument in arguments)
    return next((inner for inner in found if inner is not None), None)


def _fields_at(path: Path, model: type[BaseModel]) -> list[str]:
    """The keys that are allowed where the path leads."""
    kind = _kind_at(path, model)
    for candidate in (kind, *typing.get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return [field.alias or name for name, field in candidate.model_fields.items()]
    return []


def _kind_at(path: Path, model: type[BaseModel]) -> Any:  # noqa: ANN401 - annotations have no type
    """The annotation of what the path leads to."""
    kind: Any = model
    for step in path:
        kind = _inside(kind, int(step) if step.isdecimal() else step)
    return kind


def _shown(value: object) -> str:
    """A value in a line: cut short, and never more work than that, however it is nested."""
    try:
        text = _bounded.repr(value) if not isinstance(value, str) else repr(value[:80])
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _joined(messages: Iterable[str]) -> str:
    """Several members' wishes in one sentence: `input should be a valid boolean, or integer`."""
    first, *others = messages
    ends = (other.removeprefix("input should be a ").removeprefix("valid ") for other in others)
    return ", or ".join([first, *ends])


def _plain(message: str) -> str:
    """What pydantic says, in the words of a person who writes YAML or TOML."""
    words = message[0].lower() + message[1:]
    words = words.replace("tuple", "list").replace("dictionary", "table of keys")
    return words.replace(" after validation", "")
