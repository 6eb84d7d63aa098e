"""The best is measured, correct, within its constraints, and the same every time."""

import math
import random
from dataclasses import replace

import pytest

from settings.objective import Constraint, Objective
from tasks.domain.configuration import TrialVerdict
from tasks.domain.measurement import Validity
from tasks.results.cells import Cell, cell_means, constraint_cell, objective_cell, runs, values
from tasks.results.selection import select
from tests.results import factory
from tests.results.factory import level, measured, night, sweep, trial

BASE, BETTER, SPEC, WRONG, PRUNED, IMPLIED = night()


def label(candidate) -> str:
    return candidate.result.trial.label


def test_the_best_of_the_night():
    chosen = select(sweep(), night())
    assert chosen.best is not None
    assert chosen.best.result == BETTER
    assert str(chosen.cell) == "chat/c64"
    assert chosen.best.objective.mean == 1308
    assert chosen.best.gain is not None
    assert chosen.best.gain.value == pytest.approx(1308 / 1200, rel=1e-4)
    assert [c.result for c in chosen.ranked] == [BETTER, SPEC, BASE]
    assert chosen.excluded == {
        WRONG.trial.trial_id: "2 of 3 canary answers differ from the baseline's",
        PRUNED.trial.trial_id: PRUNED.reason,
        IMPLIED.trial.trial_id: IMPLIED.reason,
    }
    assert chosen.baseline == BASE


def test_a_noisy_runner_up_is_tied_and_a_steady_slower_one_is_not():
    steady = measured(trial(cuda_graph_max_bs=32), 1_200.0, 1_200.5, 1_199.5)
    best = measured(trial(cuda_graph_max_bs=128), 1_300.0, 1_301.0, 1_299.0)
    noisy = measured(trial(cuda_graph_max_bs=256), 1_400.0, 1_100.0)
    chosen = select(sweep(), [steady, noisy, best])
    assert [c.result for c in chosen.tied] == [noisy]


def test_with_one_run_each_all_within_the_margin_are_tied():
    trials = [measured(trial(cuda_graph_max_bs=n), v) for n, v in ((1, 1000), (2, 985), (3, 970))]
    chosen = select(sweep(), trials)
    assert [c.result for c in chosen.tied] == [trials[1]]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_trials_decides_nothing(seed: int):
    trials = list(night())
    random.Random(seed).shuffle(trials)
    assert [c.result for c in select(sweep(), trials).ranked] == [BETTER, SPEC, BASE]


def test_equal_objectives_are_decided_for_the_baseline_then_for_the_simpler():
    simple = measured(trial(), 1000)
    flagged = measured(trial(cuda_graph_max_bs=128), 1000)
    base = measured(trial(cuda_graph_max_bs=64, speculative_steps=3, baseline=True), 1000)
    chosen = select(sweep(), [flagged, simple, base])
    assert [c.result for c in chosen.ranked] == [base, simple, flagged]


def test_minimizing_turns_ranking_and_gain():
    wanted = sweep(
        objective={"metric": "median_itl_ms", "concurrency": 16, "goal": "minimize"}, constraints=[]
    )
    chosen = select(wanted, night())
    assert chosen.best is not None
    assert chosen.best.result == BETTER
    assert chosen.best.gain is not None
    assert chosen.best.gain.value > 1
    assert chosen.best.gain.interval is not None
    assert chosen.best.gain.interval.low < chosen.best.gain.value < chosen.best.gain.interval.high


def test_a_broken_constraint_excludes_with_the_number():
    chosen = select(sweep(constraints=[{"metric": "p99_ttft_ms", "max": 1000}]), night())
    assert chosen.best is None
    reason = chosen.excluded[BETTER.trial.trial_id]
    assert reason == "p99_ttft_ms 1,414 at chat/c64 is above the limit of 1,000"

    low = [{"metric": "output_throughput", "min": 50, "concurrency": 1}]
    reason = select(sweep(constraints=low), night()).excluded[BETTER.trial.trial_id]
    assert reason == "output_throughput 45.78 at chat/c1 is below the limit of 50"


def test_a_bound_itself_is_kept():
    exact = [{"metric": "output_throughput", "min": 1308, "max": 1308}]
    chosen = select(sweep(constraints=exact), night())
    assert chosen.best is not None
    assert chosen.best.result == BETTER


def test_a_constraint_that_nobody_measured_is_not_kept():
    chosen = select(sweep(constraints=[{"metric": "accept_length", "min": 2}]), night())
    assert chosen.excluded[BETTER.trial.trial_id] == "accept_length was not measured at chat/c64"


def test_a_trial_that_lacks_a_level_is_not_chosen():
    short = replace(BETTER, levels=tuple(one for one in BETTER.levels if one.concurrency != 16))
    chosen = select(sweep(), [BASE, short])
    assert chosen.excluded[short.trial.trial_id] == "no valid run at chat/c16"


def test_an_invalid_run_counts_for_nothing():
    spoilt = level(9999, repeat=3, validity=Validity.INVALID, reasons=("client late",))
    result = replace(BETTER, levels=(*BETTER.levels, spoilt))
    cell = Cell("chat", "c64")
    assert values(result, cell, "output_throughput") == (1311, 1305)
    only = replace(BETTER, levels=(spoilt,))
    assert cell_means(only, cell) == {}
    assert select(sweep(), [only]).best is None


def test_a_suspect_trial_is_not_chosen():
    suspect = replace(BETTER, verdict=TrialVerdict.SUSPECT, reason="not stationary")
    chosen = select(sweep(), [BASE, suspect])
    assert chosen.best is not None
    assert chosen.best.result == BASE
    assert chosen.excluded == {suspect.trial.trial_id: "not stationary"}


def test_an_altered_trial_may_win_and_says_so():
    altered = replace(BETTER, remedies=(factory.LESS_MEMORY,))
    best = select(sweep(), [BASE, altered]).best
    assert best is not None
    assert best.result.altered


def test_without_a_measured_baseline_there_is_no_gain():
    best = select(sweep(), [BETTER]).best
    assert best is not None
    assert best.gain is None
    assert select(sweep(), []).best is None


def test_the_last_measurement_of_a_repeat_counts():
    again = replace(BETTER, levels=(*BETTER.levels, level(1400, repeat=1)))
    assert [run.repeat for run in runs(again, Cell("chat", "c64"))] == [1, 2]
    assert values(again, Cell("chat", "c64"), "output_throughput") == (1400, 1305)


def test_an_objective_without_level_counts_at_the_heaviest():
    assert objective_cell(sweep(objective={"metric": "output_throughput"})) == Cell("chat", "c64")


def test_a_constraint_without_place_counts_where_the_objective_does():
    rates = {"name": "trickle", "request_rate": [0.5, 4]}
    content = sweep().model_dump()
    two = sweep(workloads=[*content["workloads"], rates], objective=Objective(workload="trickle"))
    assert objective_cell(two) == Cell("trickle", "4/s")

    def place(**where: object) -> str:
        return str(constraint_cell(two, Constraint(metric="mean_ttft_ms", max=1, **where)))

    assert place() == "trickle/4/s"
    assert place(request_rate=0.5) == "trickle/0.5/s"
    assert place(concurrency=16) == "chat/c16"
    assert place(workload="chat") == "chat/c64"
    assert place(workload="chat", concurrency=1) == "chat/c1"


def test_the_certainty_of_two_is_students_distribution():
    # Two runs each, ln 1.02 apart: spread² = (ln 1.02)²/2, 2 degrees of freedom. The means are
    # ln 1.03 apart, their standard error is spread * √(1/2 + 1/2): t = ln 1.03 √2 / ln 1.02.
    step = math.sqrt(1.02)
    pair = [
        measured(trial(cuda_graph_max_bs=n), speed * step, speed / step)
        for n, speed in enumerate((1000, 1030))
    ]
    t = math.log(1.03) * math.sqrt(2) / math.log(1.02)
    by_hand = (1 + t / math.sqrt(2 + t * t)) / 2  # Student's distribution with 2 degrees
    assert select(factory.sweep(), pair).certainty == pytest.approx(by_hand, abs=0.01)


def test_without_repeats_nothing_is_certain():
    pair = [measured(trial(cuda_graph_max_bs=n), 1000 + n) for n in range(2)]
    assert select(factory.sweep(), pair).certainty is None
    assert select(factory.sweep(), []).certainty is None
