"""Storing a trial: requests, then trial.json, then the summary.

Apart from the store because it needs Polars, which a reader of sweeps does not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from tasks.domain.configuration import TrialResult
from tasks.domain.measurement import LevelResult
from tasks.domain.nvidia_smi import GpuSample
from tasks.results.files import replacing, write_whole
from tasks.results.folders import SweepFolder
from tasks.results.frames import requests_frame, save_requests, save_summary
from tasks.results.records import dump_trial
from tasks.results.schema import GPU, polars_schema
from tasks.results.store import load_sweep_record, load_trials
from tasks.results.tables import write_table


def save_trial(folder: SweepFolder, result: TrialResult) -> TrialResult:
    """Store all that is known of a trial so far, in place of what was known before.

    Levels that carry records add them to the trial's requests.parquet, in place of those of the
    same workload, level and repeat. Returns the result without its records: they are on the disk,
    and needn't be held in memory for the rest of the night. Raises `StoreError`.
    """
    save_requests(folder, result)
    write_whole(folder.trial_record(result.trial.trial_id), dump_trial(result))
    save_summary(folder, load_sweep_record(folder), load_trials(folder)[0])
    return without_records(result)


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
