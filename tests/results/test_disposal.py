"""Old raw requests go, and nothing else does."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.cli import run_command
from tasks.domain.errors import InputError
from tasks.results.disposal import RawRequests, choose, delete, raw_requests, read_size
from tasks.results.folders import SweepFolder
from tasks.results.records import SweepState
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep, load_sweep, set_state
from tests.results import factory
from tests.results.factory import NIGHT, level, measured, record, trial

DAY = 86_400.0


def swept(store: Path, day: int, state: SweepState = SweepState.COMPLETED) -> SweepFolder:
    folder = create_sweep(store, factory.sweep(), now=NIGHT + day * DAY)
    with_records = level(1000, records=(record(0), record(1)))
    save_trial(folder, replace(measured(trial(), 1000), levels=(with_records,)))
    set_state(folder, state, now=NIGHT + day * DAY)
    return folder


def raw(day: int, size_bytes: int) -> RawRequests:
    return RawRequests(f"{day:03}", NIGHT + day * DAY, size_bytes, (Path("x"),))


def test_only_raw_requests_of_sweeps_that_are_over_are_found(tmp_path: Path):
    over = swept(tmp_path, 0)
    swept(tmp_path, 1, SweepState.RUNNING)
    swept(tmp_path, 2).record.write_text("{")
    found, warnings = raw_requests(tmp_path)
    (only,) = found
    assert only.sweep_id == over.sweep_id
    assert only.files == (over.requests(trial().trial_id),)
    assert only.size_bytes == only.files[0].stat().st_size
    assert len(warnings) == 1
    assert raw_requests(tmp_path / "none") == ((), ())


def test_age_and_size_choose():
    found = [raw(day, 10) for day in range(5)]
    now = NIGHT + 5 * DAY

    def days(**limits: float) -> list[str]:
        return [each.sweep_id for each in choose(found, now=now, **limits)]  # type: ignore[arg-type]

    assert days() == []
    assert days(older_than_s=3 * DAY) == ["000", "001"]
    assert days(keep_bytes=25) == ["000", "001", "002"]
    assert days(keep_bytes=25, older_than_s=DAY) == ["000", "001", "002", "003"]
    assert days(keep_bytes=0) == ["000", "001", "002", "003", "004"]


def test_nothing_older_is_kept_once_one_does_not_fit():
    found = [raw(0, 1), raw(1, 100), raw(2, 10)]
    assert [each.sweep_id for each in choose(found, now=NIGHT, keep_bytes=50)] == ["000", "001"]


def test_what_is_concluded_stays(tmp_path: Path):
    folder = swept(tmp_path, 0)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    stored = load_sweep(tmp_path, "latest")
    found, _ = raw_requests(tmp_path)
    delete(found)
    delete(found)
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert before - after == {folder.requests(trial().trial_id)}
    assert load_sweep(tmp_path, "latest") == stored


@pytest.mark.parametrize(
    ("text", "size"), [("20GB", 20 * 10**9), ("1.5t", 15 * 10**11), ("500mb", 5 * 10**8), ("0", 0)]
)
def test_sizes(text: str, size: int):
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "nan", "many", "inf"])
def test_no_sizes(text: str):
    with pytest.raises(InputError, match="--keep"):
        read_size(text)


def test_nothing_goes_before_somebody_agreed(tmp_path: Path, monkeypatch, capsys):
    folder = swept(tmp_path, -400)
    requests = folder.requests(trial().trial_id)
    settings = tmp_path / "settings.toml"
    settings.write_text(f'store = "{tmp_path}"\n')
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", str(settings))
    assert run_command(["gc"]) == 2
    assert run_command(["gc", "--older-than", "soon"]) == 2
    assert run_command(["gc", "--keep", "0"]) == 2, "nobody can be asked, without a terminal"
    assert requests.exists()
    assert "say --yes" in capsys.readouterr().err
    assert run_command(["gc", "--keep", "0", "--yes"]) == 0
    assert not requests.exists()
    assert run_command(["gc", "--keep", "0", "--yes"]) == 0
