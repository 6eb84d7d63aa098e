"""Read a sweep file, with `--set key=value` on top, into a `Sweep` or one line per fault."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from settings.application import InvalidSettings
from settings.faults import describe
from settings.sweep import Sweep

_DOTTED_KEYS = ("axes", "baseline")


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
        raw = YAML(typ="safe", pure=True).load(path.read_text())
    except FileNotFoundError as error:
        raise InvalidSettings(str(path), ["no such file"]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(str(path), [f"not readable: {error}"]) from error
    except YAMLError as error:
        raise InvalidSettings(str(path), [f"not valid YAML: {_where(error)}"]) from error
    if not isinstance(raw, dict):
        raise InvalidSettings(str(path), ["expected keys such as name, server and workloads"])
    return raw


def _where(error: YAMLError) -> str:
    """The problem with its line, in one line."""
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"  # type: ignore[attr-defined]


def _override(raw: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InvalidSettings("--set", [f"{override!r}: expected key=value, as search.repeats=3"])
    value = YAML(typ="safe", pure=True).load(text)
    steps = key.strip().split(".")
    if steps[0] in _DOTTED_KEYS and len(steps) > 1:
        steps = [steps[0], ".".join(steps[1:])]
    place: Any = raw
    for step in steps[:-1]:
        place = _step_into(place, step, override)
    if isinstance(place, list):
        place[_index(place, steps[-1], override)] = value
    else:
        place[steps[-1]] = value


def _step_into(place: Any, step: str, override: str) -> Any:  # noqa: ANN401 - raw YAML
    if isinstance(place, list):
        return place[_index(place, step, override)]
    inner = place.setdefault(step, {})
    if not isinstance(inner, dict | list):
        raise InvalidSettings("--set", [f"{override!r}: {step} has no keys below it"])
    return inner


def _index(place: list[Any], step: str, override: str) -> int:
    if not step.isdigit() or int(step) >= len(place):
        raise InvalidSettings(
            "--set", [f"{override!r}: {step} is not one of 0 to {len(place) - 1}"]
        )
    return int(step)
