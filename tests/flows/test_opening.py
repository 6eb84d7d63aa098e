"""What a resumed sweep begins with."""

from pathlib import Path

import polars as pl

from flows.opening import open_results
from tasks.domain.configuration import TrialVerdict
from tasks.results.files import write_whole
from tasks.results.records import dump_trial
from tasks.results.store import create_sweep
from tasks.search.grid import plan_trials
from tests.results import factory


def test_a_trial_that_was_killed_before_its_summary_is_kept_and_summarised(tmp_path: Path):
    """However little is left to measure: a night's history is read from the summary."""
    asked = factory.sweep()
    folder = create_sweep(tmp_path, asked, now=factory.NIGHT)
    done = factory.measured(plan_trials(asked)[0], 1204.0, 1196.0)
    write_whole(folder.trial_record(done.trial.trial_id), dump_trial(done))

    opened, results = open_results(tmp_path, asked, folder.sweep_id)

    assert opened == folder
    assert results.pop(done.trial.trial_id) == done
    assert {result.verdict for result in results.values()} == {TrialVerdict.PENDING}
    assert pl.read_parquet(folder.summary).height == 2 * 3
