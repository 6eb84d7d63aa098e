"""Remedies that worked, kept per host and stack fingerprint: next time they come first."""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tasks.domain.diagnosis import Remedy
from tasks.results.files import write_whole

_Kept = dict[str, dict[str, Remedy]]
_KEPT = TypeAdapter(_Kept)


def remembered(store: Path, host: str, fingerprint: str) -> dict[str, Remedy]:
    """The remedies that cured a launch on this host and stack, by failure mode.

    A damaged file counts as empty: forgetting costs one launch, a wrong memory costs a night.
    """
    return _load(store).get(f"{host}/{fingerprint}", {})


def remember(store: Path, host: str, fingerprint: str, cures: dict[str, Remedy]) -> None:
    """Keep what worked, beside what is known already. Raises `StoreError`."""
    lasting = {mode: remedy for mode, remedy in cures.items() if lasts(remedy)}
    if not lasting:
        return
    kept = _load(store)
    kept[f"{host}/{fingerprint}"] = kept.get(f"{host}/{fingerprint}", {}) | lasting
    write_whole(store / "remedies.json", _KEPT.dump_json(kept, indent=2))


def lasts(remedy: Remedy) -> bool:
    """Whether a remedy is a property of the stack, and cures every launch there.

    A clean-up, a port and a wait cure one launch; a flag and whatever alters the measurement
    belong to the one configuration that needed them.
    """
    return bool(remedy.env) and not remedy.args and not remedy.scale_args and not remedy.alters


def _load(store: Path) -> _Kept:
    try:
        return _KEPT.validate_json((store / "remedies.json").read_bytes())
    except (OSError, ValidationError):
        return {}
