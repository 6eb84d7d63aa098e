"""From axes to trials, worked by hand and by property."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.sweep import Sweep
from tasks.domain.configuration import ServerConfiguration
from tasks.domain.errors import InputError
from tasks.search.axes import configure
from tasks.search.grid import baseline_choice, excluded, plan_trials, rounds

SPECULATIVE = {"algorithm": "EAGLE3", "draft_model_path": "draft", "eagle_topk": 2}
CHAIN_OF_3 = {
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "draft",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 2,
    "speculative_num_draft_tokens": 7,
}


def sweep(axes: dict[str, list[Any]], **changes: Any) -> Sweep:
    server = {"model_path": "m", **changes.pop("server", {})}
    workloads = [{"name": "w", "concurrency": 1}]
    content = {"name": "n", "server": server, "axes": axes, "workloads": workloads, **changes}
    return Sweep.model_validate(content)


def choices(one: Sweep) -> list[tuple[object, ...]]:
    return [tuple(trial.axes.values()) for trial in plan_trials(one)]


def test_a_grid_by_hand():
    one = sweep({"cuda_graph_max_bs": [64, 128], "nccl_channels": [8, 16]})
    assert choices(one) == [(64, 8), (64, 16), (128, 8), (128, 16)]
    first, second, *_ = plan_trials(one)
    assert (first.baseline, second.baseline) == (True, False)
    assert first.configuration == ServerConfiguration(
        "m",
        {"cuda_graph_max_bs": 64},
        {"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "8"},
    )
    assert first.trial_id == first.configuration.digest
    assert first.label == "cuda_graph_max_bs=64 nccl_channels=8"


def test_no_axes_are_one_trial():
    (only,) = plan_trials(sweep({}))
    assert (only.baseline, only.axes, only.label) == (True, {}, "as given")


def test_the_baseline_comes_first():
    axes = {"cuda_graph_max_bs": [64, 128], "nccl_channels": [8, 16]}
    one = sweep(axes, baseline={"cuda_graph_max_bs": 128, "nccl_channels": 16})
    assert choices(one) == [(128, 16), (64, 8), (64, 16), (128, 8)]
    assert [trial.baseline for trial in plan_trials(one)] == [True, False, False, False]


def test_an_axis_that_the_baseline_leaves_out_takes_its_first_value():
    one = sweep({"cuda_graph_max_bs": [64, 128], "env.A": [2, 1]}, baseline={"env.A": 1})
    assert baseline_choice(one) == {"cuda_graph_max_bs": 64, "env.A": "1"}


def test_a_baseline_that_is_excluded_or_outside_of_the_grid_is_measured_all_the_same():
    axes = {"cuda_graph_max_bs": [64, 128]}
    inside = sweep(axes, exclude=[{"cuda_graph_max_bs": 64}])
    assert choices(inside) == [(64,), (128,)]
    outside = sweep(axes, exclude=[{"cuda_graph_max_bs": 64}], baseline={"cuda_graph_max_bs": 512})
    assert choices(outside) == [(512,), (128,)]
    assert [trial.baseline for trial in plan_trials(outside)] == [True, False]


def test_what_is_excluded_is_left_out_and_counted():
    axes = {"cuda_graph_max_bs": [64, 128, 256], "env.A": [0, 1]}
    rules = [{"cuda_graph_max_bs": 256, "env.A": 1}, {"cuda_graph_max_bs": 128}]
    one = sweep(axes, exclude=rules)
    assert choices(one) == [(64, "0"), (64, "1"), (256, "0")]
    assert excluded(one) == 3


def test_choices_that_come_to_the_same_are_one_trial():
    axes = {"args.x": [False, None, True], "args.speculative_eagle_topk": [1, 4]}
    one = sweep({**axes, "speculative_steps": [0]}, server={"args": {"x": False}})
    assert choices(one) == [(False, 1, 0), (True, 1, 0)]


def test_identities_do_not_depend_on_any_order():
    axes = {
        "args.speculative_eagle_topk": [1, 4],
        "speculative_steps": [0, 3],
        "env.NCCL_ALGO": ["Ring", None],
        "nccl_channels": [8],
        "stack": ["a", "b"],
    }
    args = {"tp": 8, "trust_remote_code": True, "speculative_attention_mode": "decode"}
    env = {"NCCL_ALGO": "Tree", "B": "1"}
    server = {"args": args, "env": env}
    ids = {
        trial.trial_id for trial in plan_trials(sweep(axes, server=server, speculative=SPECULATIVE))
    }
    assert len(ids) == 12  # topk says nothing where speculation is off: 2 x 2 x (1 + 2)
    for seed in range(5):
        shuffled = {
            key: dict(random.Random(seed).sample(sorted(value.items()), len(value)))
            for key, value in server.items()
        }
        mixed = dict(random.Random(seed).sample(sorted(axes.items()), len(axes)))
        found = {
            trial.trial_id
            for trial in plan_trials(sweep(mixed, server=shuffled, speculative=SPECULATIVE))
        }
        assert found == ids


def test_an_identity_is_kept_over_releases():
    """`sha256sum` of `["m",{"cuda_graph_max_bs":64},{"A":"1"},null]`."""
    (only,) = plan_trials(sweep({"cuda_graph_max_bs": [64]}, server={"env": {"A": 1}}))
    assert only.trial_id == "04c1e50dd823"


def test_speculation_is_set_consistently():
    server = {"args": {"tp": 8, "speculative_algorithm": "NGRAM", "speculative_num_steps": 9}}
    one = sweep({"speculative_steps": [3]}, server=server, speculative=SPECULATIVE)
    (only,) = plan_trials(one)
    assert only.configuration.args == {"tp": 8, **CHAIN_OF_3}
    without = sweep({"speculative_steps": [2]}, speculative={"algorithm": "NGRAM"})
    (only,) = plan_trials(without)
    assert only.configuration.args == {
        "speculative_algorithm": "NGRAM",
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 3,
    }


def test_no_speculative_steps_leave_no_speculative_flag():
    server = {"args": {**CHAIN_OF_3, "speculative_attention_mode": "decode", "tp": 8}}
    axes = {"speculative_steps": [0, 3], "args.speculative_token_map": ["map"]}
    off, on = plan_trials(sweep(axes, server=server, speculative=SPECULATIVE))
    assert off.configuration.args == {"tp": 8}
    assert on.configuration.args == {
        "tp": 8,
        "speculative_attention_mode": "decode",
        "speculative_token_map": "map",
        **CHAIN_OF_3,
    }


def test_a_sweep_that_does_not_vary_speculation_keeps_the_server_s_own():
    (only,) = plan_trials(sweep({}, server={"args": CHAIN_OF_3}))
    assert only.configuration.args == CHAIN_OF_3


def test_a_variable_that_is_null_is_unset():
    one = sweep({"env.A": [None, 2], "env.B": [None]}, server={"env": {"A": "1", "B": "", "C": 0}})
    unset, kept = plan_trials(one)
    assert unset.configuration.env == {"C": "0"}
    assert kept.configuration.env == {"A": "2", "C": "0"}


def test_flags_switch_on_off_and_take_lists():
    server = {"args": {"a": True, "b": False, "c": None, "d": [1, 2], "e": 0, "f": ""}}
    one = sweep({"args.a": [False, "x"]}, server=server)
    off, on = plan_trials(one)
    assert off.configuration.args == {"d": [1, 2], "e": 0, "f": ""}
    assert on.configuration.args == {"a": "x", "d": [1, 2], "e": 0, "f": ""}


def test_the_stack_is_the_one_that_the_axis_names():
    first, second = plan_trials(sweep({"stack": ["~/a", "~/b"]}))
    assert (first.configuration.stack, second.configuration.stack) == ("~/a", "~/b")
    (only,) = plan_trials(sweep({}))
    assert only.configuration.stack is None


def test_a_grid_that_no_night_could_measure_is_refused_at_once():
    axes = {f"args.a{n}": list(range(10)) for n in range(12)}
    with pytest.raises(InputError, match="axes: 1,000,000,000,000 combinations are too many"):
        plan_trials(sweep(axes))


def test_rounds_interleave_and_every_second_one_runs_backwards():
    trials = plan_trials(sweep({"cuda_graph_max_bs": [1, 2, 3]}))
    order = [(n, trial.axes["cuda_graph_max_bs"]) for n, trial in rounds(trials, 3)]
    assert order == [(1, 1), (1, 2), (1, 3), (2, 3), (2, 2), (2, 1), (3, 1), (3, 2), (3, 3)]
    assert list(rounds(trials, 0)) == []
    assert list(rounds((), 3)) == []


VALUES = st.lists(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "0", "1", "x y"]),
    min_size=1,
    max_size=3,
    unique_by=lambda value: (type(value), value),
)
AXES = st.fixed_dictionaries(
    {},
    optional={
        "cuda_graph_max_bs": st.just([1, 2]),
        "nccl_channels": st.just([4, 8]),
        "speculative_steps": st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True),
        "stack": st.just(["a", "b"]),
        "args.flag": VALUES,
        "args.speculative_eagle_topk": st.just([1, 2]),
        "env.NAME": VALUES.filter(lambda values: len(set(map(str, values))) == len(values)),
    },
)


@given(AXES)
def test_identities_are_unique_and_stand_for_one_configuration(axes: dict[str, list[Any]]):
    one = sweep(axes, speculative=SPECULATIVE)
    trials = plan_trials(one)
    assert len({trial.trial_id for trial in trials}) == len(trials)
    spelt = {
        json.dumps([dict(c.args), dict(c.env), c.stack], sort_keys=True)
        for c in (trial.configuration for trial in trials)
    }
    assert len(spelt) == len(trials)
    assert [trial.baseline for trial in trials] == [True] + [False] * (len(trials) - 1)
    assert all(configure(one, trial.axes) == trial.configuration for trial in trials)
