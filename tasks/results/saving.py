"""Storing a trial: requests, then trial.json, then the summary.

Apart from the store because it needs Polars, which a reader of sweeps does not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Lock

import polars as pl

from tasks.domain.configuration import TrialResult
from tasks.domain.measurement import LevelResult
from tasks.domain.nvidia_smi import GpuSample
from tasks.results.files import replacing, write_whole
from tasks.results.folders import SweepFolder
from tasks.results.frames import (
    TrialRows,
    requests_frame,
    save_requests,
    save_summary,
    trial_rows,
)
from tasks.results.records import SweepRecord, dump_trial
from tasks.results.schema import GPU, polars_schema
from tasks.results.store import load_sweep_record, load_trials
from tasks.results.tables import write_table


class TrialStore:
    """Where the trials of one sweep are stored, by the one who runs it.

    The rows of the summary are worked out once a trial and kept: the last trial of a long night
    costs about what the first did. What lies there already is read when the first trial is stored,
    so what an earlier run was killed in the middle of is right from then on.
    """

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self._lock = Lock()
        self._record: SweepRecord | None = None
        self._rows: dict[str, TrialRows] = {}

    def save(self, result: TrialResult) -> TrialResult:
        """Store all that is known of a trial so far, in place of what was known before.

        Levels that carry records add them to the trial's requests.parquet, in place of those of
        the same workload, level and repeat. Returns the result without its records: they are on
        the disk, and needn't be held in memory for the rest of the night. Raises `StoreError`.
        """
        with self._lock:
            save_requests(self.folder, result)
            write_whole(self.folder.trial_record(result.trial.trial_id), dump_trial(result))
            self._summarise(result)
        return without_records(result)

    def _summarise(self, result: TrialResult) -> None:
        if self._record is None:
            record = load_sweep_record(self.folder)
            trials = load_trials(self.folder)[0]
            self._rows = {each.trial.trial_id: trial_rows(record, each) for each in trials}
            self._record = record
        self._rows[result.trial.trial_id] = trial_rows(self._record, result)
        save_summary(self.folder, self._rows.values())


def save_trial(folder: SweepFolder, result: TrialResult) -> TrialResult:
    """Store one trial, as `TrialStore` does; who stores many keeps one of those."""
    return TrialStore(folder).save(result)


def save_unlaunched(folder: SweepFolder, results: Iterable[TrialResult]) -> None:
    """Store trials that have measured nothing: the summary has no row of theirs."""
    for result in results:
        write_whole(folder.trial_record(result.trial.trial_id), dump_trial(result))


def without_records(result: TrialResult) -> TrialResult:
    """Leave the requests out."""
    return replace(result, levels=tuple(replace(level, records=()) for level in result.levels))


def save_levels(path: Path, levels: Sequence[LevelResult]) -> None:
    """Write every request of some runs to a Parquet file, as requests.parquet has them."""
    with replacing(path) as partial:
        write_table(requests_frame(levels).lazy(), partial)


def save_gpu(folder: SweepFolder, trial_id: str, number: int, samples: Sequence[GpuSample]) -> None:
    """Write what the GPUs did during one attempt; nothing where nobody could tell."""
    if not samples:
        return
    frame = pl.DataFrame([asdict(sample) for sample in samples], schema=polars_schema(GPU))
    with replacing(folder.attempt(trial_id, number) / "gpu.parquet") as partial:
        write_table(frame.lazy(), partial)
