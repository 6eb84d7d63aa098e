"""The last launches that came up, kept per host and model: how long they took, with what."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tasks.domain.configuration import Attempt
from tasks.results.files import write_whole

_LAST = 5


@dataclass(frozen=True, slots=True)
class GoodLaunch:
    """The environment of the last one, and the seconds from launch to ready of the last few."""

    env: Mapping[str, str]
    ready_s: tuple[float, ...]

    @property
    def expected_s(self) -> float:
        """How long the next one should take: the median."""
        return statistics.median(self.ready_s)


_KEPT = TypeAdapter(dict[str, GoodLaunch])


def good_launch(store: Path, host: str, model_path: str) -> GoodLaunch | None:
    """Find the last launches of a model on a host; None where none is known.

    A damaged file counts as empty: it only costs an estimate.
    """
    return _load(store).get(f"{host}/{model_path}")


def keep_good_launch(store: Path, host: str, model_path: str, attempt: Attempt) -> None:
    """Remember a launch that came up. Raises `StoreError`."""
    if attempt.ready_s is None:
        return
    kept, key = _load(store), f"{host}/{model_path}"
    before = kept[key].ready_s if key in kept else ()
    kept[key] = GoodLaunch(dict(attempt.env), (*before, attempt.ready_s)[-_LAST:])
    write_whole(store / "launches.json", _KEPT.dump_json(kept, indent=2))


def _load(store: Path) -> dict[str, GoodLaunch]:
    try:
        return _KEPT.validate_json((store / "launches.json").read_bytes())
    except (OSError, ValidationError):
        return {}
