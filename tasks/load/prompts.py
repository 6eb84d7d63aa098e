"""Prompts from a file of one's own: ShareGPT's JSON, or JSON lines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tasks.domain.errors import InputError

_PEOPLE = ("human", "user")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a person said, turn by turn; how many tokens each answer shall have, if it says so."""

    turns: tuple[str, ...]
    output_len: int | None = None


def read_entries(path: Path) -> list[Entry]:
    """Read what each entry of a file asks, in the order of the file.

    An entry is a text, or an object with `prompt`, with `messages` (OpenAI's) or `conversations`
    (ShareGPT's), and perhaps with `output_len`; the file is a JSON array of them, or has one a
    line. Raises `InputError`, which names the first entry that is neither.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError("file", [f"{path}: {error.strerror or error}"]) from error
    found = [_entry(path, place, entry) for place, entry in _entries(path, content)]
    if not found:
        raise InputError("file", [f"{path}: holds no prompt"])
    return found


def _entries(path: Path, content: bytes) -> list[tuple[str, Any]]:
    """The entries of a file, each with its place in words."""
    if content.lstrip()[:1] == b"[":
        found = _load(path, "the array", content)
        return [(f"entry {number}", entry) for number, entry in enumerate(found)]
    lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    return [(f"line {number}", _load(path, f"line {number}", line)) for number, line in lines]


def _load(path: Path, place: str, text: bytes) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError("file", [f"{path}, {place}: not JSON: {error}"]) from error


def _entry(path: Path, place: str, entry: object) -> Entry:
    length = entry.get("output_len") if isinstance(entry, dict) else None
    if length is not None and (type(length) is not int or length < 1):
        fault = f"{path}, {place}: output_len {length!r} is not a number of tokens"
        raise InputError("file", [fault])
    match entry:
        case str() if entry:
            return Entry((entry,))
        case {"prompt": str(prompt)} if prompt:
            return Entry((prompt,), length)
        case {"messages": [*turns]} | {"conversations": [*turns]} | {"conversation": [*turns]}:
            said = tuple(text for turn in turns if (text := _said(turn)))
            if said:
                return Entry(said, length)
    known = "a text, `prompt`, `messages` or `conversations` with a first prompt"
    raise InputError("file", [f"{path}, {place}: expected {known}"])


def _said(turn: object) -> str:
    """What a person said in one turn of a conversation; nothing where it was the model."""
    match turn:
        case {"role": who, "content": str(text)} | {"from": who, "value": str(text)}:
            return text if who in _PEOPLE else ""
    return ""
