"""Read a sweep file, with `--set key=value` on top, into a `Sweep` or one line per fault."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError

from settings.faults import describe
from settings.invalid import InvalidSettings
from settings.sweep import Sweep

_AXES_BELOW = {"axes": 0, "baseline": 0, "exclude": 1}
"""How many steps stand between a key and the names of axes below it."""


def read_sweep(path: Path, overrides: Sequence[str] = (), host: str | None = None) -> Sweep:
    """Read a sweep file.

    `overrides` are `key=value` with dotted keys and YAML values (`search.repeats=3`,
    `axes.cuda_graph_max_bs=[64, 128]`). Raises `InvalidSettings` with one line per fault.
    """
    raw = _parse(path)
    for override in overrides:
        _override(raw, override)
    if host is not None:
        raw["host"] = host
    return parse_sweep(raw, str(path))


def parse_sweep(raw: object, source: str) -> Sweep:
    """Check what stands in a sweep file. Raises `InvalidSettings` with one line per fault."""
    try:
        return Sweep.model_validate(raw)
    except ValidationError as error:
        raise InvalidSettings(source, [line for _, line in describe(error, Sweep)]) from error


def _parse(path: Path) -> dict[str, Any]:
    try:
        raw = _yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidSettings(str(path), ["no such file"]) from error
    except OSError as error:
        raise InvalidSettings(str(path), [f"not readable: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(str(path), [f"not a text file: {error}"]) from error
    except _InvalidYaml as error:
        raise InvalidSettings(str(path), [f"not valid YAML: {error}"]) from error
    if not isinstance(raw, dict):
        raise InvalidSettings(str(path), ["expected keys such as name, server and workloads"])
    return raw


class _InvalidYaml(Exception):
    """A text is not YAML; the problem and its place in one line."""


def _yaml(text: str) -> Any:  # noqa: ANN401 - raw YAML
    """Read YAML. Raises `_InvalidYaml` for whatever the library stumbles over."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except RecursionError as error:
        raise _InvalidYaml("nested too deeply") from error
    except MarkedYAMLError as error:
        raise _InvalidYaml(_where(error)) from error
    except Exception as error:  # the library lets through what int, float and datetime raise
        raise _InvalidYaml(" ".join(str(error).split())) from error


def _where(error: MarkedYAMLError) -> str:
    """The problem with its place; values of keys that stand twice may be secrets."""
    problem = str(error.problem)
    if isinstance(error, DuplicateKeyError):
        problem = problem.partition(" with value ")[0]
    mark = error.problem_mark
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _override(raw: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InvalidSettings("--set", [f"{override!r}: expected key=value, as search.repeats=3"])
    try:
        value = _yaml(text)
    except _InvalidYaml as error:
        raise InvalidSettings("--set", [f"{override!r}: not valid YAML: {error}"]) from error
    steps = _steps(key.strip())
    place: Any = raw
    for step in steps[:-1]:
        place = _step_into(place, step, override)
    if isinstance(place, list):
        place[_index(place, steps[-1], override)] = value
    else:
        place[steps[-1]] = value


def _steps(key: str) -> list[str]:
    """The keys that lead to a value; the name of an axis has a dot of its own."""
    first, *rest = key.split(".")
    before_axis = _AXES_BELOW.get(first)
    if before_axis is None or len(rest) <= before_axis:
        return [first, *rest]
    return [first, *rest[:before_axis], ".".join(rest[before_axis:])]


def _step_into(place: Any, step: str, override: str) -> Any:  # noqa: ANN401 - raw YAML
    if isinstance(place, list):
        return place[_index(place, step, override)]
    if place.get(step) is None:
        place[step] = {}
    inner = place[step]
    if not isinstance(inner, dict | list):
        raise InvalidSettings("--set", [f"{override!r}: {step} has no keys below it"])
    return inner


def _index(place: list[Any], step: str, override: str) -> int:
    if not step.isdecimal() or int(step) >= len(place):
        wanted = f"one of 0 to {len(place) - 1}" if place else "there: the list is empty"
        raise InvalidSettings("--set", [f"{override!r}: {step} is not {wanted}"])
    return int(step)
