"""Turn what pydantic says into one line per fault: key path, value, what is allowed, way out."""

import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from settings.nearest import suggest

Path = tuple[str, ...]


def describe(error: ValidationError, model: type[BaseModel]) -> list[tuple[Path, str]]:
    """One (key path, line) per fault of a model's input; duplicates of a union are merged."""
    grouped: dict[Path, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        grouped.setdefault(_written_path(detail["loc"], model), []).append(detail)
    return [
        (path, line) for path, details in grouped.items() for line in _lines(details, path, model)
    ]


def _lines(details: list[ErrorDetails], path: Path, model: type[BaseModel]) -> list[str]:
    """The lines on one key; a union's members each complain, but it is one fault."""
    where = ".".join(path)
    detail = details[0]
    match detail["type"]:
        case "extra_forbidden":
            valid = _fields_at(path[:-1], model)
            hint = suggest(path[-1], valid) or f"; allowed are {', '.join(sorted(valid))}"
            return [f"{where}: no such key{hint}"]
        case "missing":
            return [f"{where}: missing; it must be given"]
        case "value_error":
            return _own_words(detail, where)
        case _:
            messages = dict.fromkeys(_plain(each["msg"]) for each in details)
            return [f"{where}: {_shown(detail['input'])} is not valid: {_joined(messages)}"]


def _own_words(detail: ErrorDetails, where: str) -> list[str]:
    """Our own validators: several faults a line each, already with their path at the root."""
    message = detail["msg"].removeprefix("Value error, ")
    prefix = f"{where}: " if where else ""
    value = detail["input"]
    shown = f"{_shown(value)}: " if isinstance(value, str | int | float) else ""
    return [f"{prefix}{shown}{line}" for line in message.splitlines()]


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
    kind: Any = model
    for step in path:
        kind = _inside(kind, int(step) if step.isdigit() else step)
    for candidate in (kind, *typing.get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return list(candidate.model_fields)
    return []


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _joined(messages: Iterable[str]) -> str:
    """Several members' wishes in one sentence: `input should be a valid boolean, or integer`."""
    first, *others = messages
    return ", or ".join([first, *(other.split("a valid ")[-1] for other in others)])


def _plain(message: str) -> str:
    return message[0].lower() + message[1:]
