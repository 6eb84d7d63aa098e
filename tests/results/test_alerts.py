"""What a night tells: one alert a cause, with the decision, the numbers and the link."""

from dataclasses import replace
from pathlib import Path

from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.results.alerts import (
    FINISHED,
    HOST_UNFIT,
    LAUNCH_FAILED,
    REGRESSION,
    Alert,
    alerts,
    decision_text,
    unfit,
)
from tasks.results.conclusion import NEEDS_PERSON, Conclusion, conclude
from tasks.results.folders import SweepFolder
from tasks.results.records import StoredSweep, SweepState
from tasks.results.saving import save_trial
from tasks.results.selection import select
from tasks.results.store import (
    create_sweep,
    load_sweep,
    load_sweep_record,
    note_killed,
    set_flow_run,
    set_state,
    sweep_of,
)
from tasks.results.view import view
from tests.results import factory
from tests.results.factory import NIGHT, attempt, capture_oom, measured, night, trial

LINK = "/data/sweeps/n/report.html"


def stored(store: Path, *trials: TrialResult) -> StoredSweep:
    folder = create_sweep(store, factory.sweep(), now=NIGHT)
    for each in trials:
        save_trial(folder, each)
    return load_sweep(store, folder.sweep_id)


def by_event(told: list[Alert]) -> dict[str, list[Alert]]:
    return {event: [alert for alert in told if alert.event == event] for event in
            {alert.event for alert in told}}  # fmt: skip


def test_a_cured_failure_alarms_nobody_and_a_pruned_trial_does_once(tmp_path: Path) -> None:
    sweep = stored(tmp_path, *night())
    told = by_event(alerts(view(sweep), conclude(view(sweep)), LINK))
    assert set(told) == {FINISHED, LAUNCH_FAILED}
    (failed,) = told[LAUNCH_FAILED]
    assert failed.payload["mode"] == "oom-graph-capture"
    text = str(failed.payload["text"])
    assert "oom-graph-capture cost 1 trial: the CUDA graphs of 256" in text
    assert "best: cuda_graph_max_bs=128 speculative_steps=0: 1,308" in text
    assert "+9.0 % over the baseline" in text
    assert LINK in text


def test_one_message_a_cause_however_many_trials_it_cost(tmp_path: Path) -> None:
    pruned = [
        TrialResult(
            each,
            TrialVerdict.PRUNED,
            capture_oom().cause,
            attempts=(attempt(each, ready_s=None, exit_code=1, diagnosis=capture_oom()),),
        )
        for each in (trial(cuda_graph_max_bs=size) for size in (128, 256, 512))
    ]
    sweep = stored(tmp_path, measured(trial(baseline=True, cuda_graph_max_bs=64), 1000.0), *pruned)
    (failed,) = by_event(alerts(view(sweep), conclude(view(sweep)), LINK))[LAUNCH_FAILED]
    assert "cost 3 trials" in str(failed.payload["text"])
    assert len(failed.payload["trials"]) == 3  # type: ignore[arg-type]
    assert "best: the baseline" in str(failed.payload["text"])


def test_a_regression_and_a_host_that_needs_a_person_are_told(tmp_path: Path) -> None:
    sweep = stored(tmp_path, *night())
    slower = Conclusion(SweepState.REGRESSION, "Regression", "output_throughput fell by 3.1 %")
    (told,) = by_event(alerts(view(sweep), slower, LINK))[REGRESSION]
    assert "fell by 3.1 %" in str(told.payload["text"])
    stopped = Conclusion(SweepState.FAILED, NEEDS_PERSON, "GPU 3 fell off the bus")
    (told,) = by_event(alerts(view(sweep), stopped, LINK))[HOST_UNFIT]
    assert told.host == "blackwell"
    assert "GPU 3 fell off the bus" in str(told.payload["text"])
    assert "no route" in str(unfit("nightly", "blackwell", "no route").payload["text"])


def test_no_decision_is_said_as_such(tmp_path: Path) -> None:
    lone = replace(measured(trial(baseline=True), 1000.0), verdict=TrialVerdict.INCORRECT)
    sweep = stored(tmp_path, lone)
    assert decision_text(select(sweep.sweep, sweep.trials)) == (
        "no configuration can be recommended"
    )


def test_whoever_holds_the_host_knows_which_sweeps_were_killed_there(tmp_path: Path) -> None:
    killed = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    elsewhere = create_sweep(tmp_path, factory.sweep(host="another"), now=NIGHT + 1)
    ended = create_sweep(tmp_path, factory.sweep(), now=NIGHT + 2)
    set_state(ended, SweepState.COMPLETED, now=NIGHT + 3)
    assert [k.sweep_id for k in note_killed(tmp_path, "blackwell", now=NIGHT + 4)] == [
        killed.sweep_id
    ]
    assert load_sweep_record(killed).state is SweepState.CRASHED
    assert "never said how it ended" in load_sweep_record(killed).reason
    assert load_sweep_record(elsewhere).state is SweepState.RUNNING
    assert load_sweep_record(ended).state is SweepState.COMPLETED
    assert note_killed(tmp_path, "blackwell", now=NIGHT + 5) == []


def test_a_sweep_is_found_by_the_flow_run_that_ran_it_last(tmp_path: Path) -> None:
    folder: SweepFolder = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    set_flow_run(folder, "run-1")
    set_flow_run(folder, "run-2")
    found = sweep_of(tmp_path, "run-2")
    assert found is not None
    assert found.sweep_id == folder.sweep_id
    assert sweep_of(tmp_path, "run-1") is None


def test_a_damaged_sweep_hides_no_other(tmp_path: Path) -> None:
    killed = create_sweep(tmp_path, factory.sweep(), now=NIGHT)
    set_flow_run(killed, "run-1")
    damaged = create_sweep(tmp_path, factory.sweep(), now=NIGHT + 1)
    damaged.record.write_text('{"state": "running", "flow_run": "run-1"')
    create_sweep(tmp_path, factory.sweep(), now=NIGHT + 2).record.unlink()
    found = sweep_of(tmp_path, "run-1")
    assert found is not None
    assert found.sweep_id == killed.sweep_id
    told = note_killed(tmp_path, "blackwell", now=NIGHT + 5)
    assert [record.sweep_id for record in told] == [killed.sweep_id]
