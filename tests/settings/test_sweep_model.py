"""The sweep as it is read: every kind of axis, what follows from it, and back again."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from settings.sweep import Sweep
from settings.sweep_file import read_sweep

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
MINIMAL: dict[str, Any] = {
    "name": "n",
    "server": {"model_path": "m"},
    "workloads": [{"name": "w", "concurrency": 1}],
}


def sweep(**changes: object) -> Sweep:
    return Sweep.model_validate({**MINIMAL, **changes})


def test_every_kind_of_axis():
    axes = {
        "cuda_graph_max_bs": [64, 128],
        "nccl_channels": [8],
        "speculative_steps": [0, 3],
        "stack": ["~/a/bin/python3"],
        "args.attention-backend": ["triton", None],
        "args.--enable-x": [False, True],
        "env.NCCL_ALGO": ["Ring", None],
        "env.N": [1, 1.5, True],
    }
    draft = {"draft_model_path": "/models/draft"}
    assert sweep(axes=axes, speculative=draft).axes == {
        "cuda_graph_max_bs": [64, 128],
        "nccl_channels": [8],
        "speculative_steps": [0, 3],
        "stack": ["~/a/bin/python3"],
        "args.attention_backend": ["triton", None],
        "args.enable_x": [False, True],
        "env.NCCL_ALGO": ["Ring", None],
        "env.N": ["1", "1.5", "true"],
    }


def test_exclude_and_baseline_know_an_axis_by_every_spelling():
    one = sweep(
        axes={"args.tp_size": [4, 8], "env.A": [1, 2]},
        exclude=[{"args.--tp-size": 8, "env.A": 2}],
        baseline={"args.tp-size": 2, "env.A": 9},
    )
    assert one.exclude == [{"args.tp_size": 8, "env.A": 2}]
    assert one.baseline == {"args.tp_size": 2, "env.A": 9}


def test_flags_and_variables_of_the_server():
    one = sweep(
        server={
            "model_path": "m",
            "args": {"--tp-size": 8, "trust-remote-code": True, "x": None, "l": [1, "a"]},
            "env": {"A": 1, "B": "", "C": None, "D": False},
        }
    )
    assert one.server.args == {"tp_size": 8, "trust_remote_code": True, "x": None, "l": [1, "a"]}
    assert one.server.env == {"A": "1", "B": "", "D": "false"}


@pytest.mark.parametrize("key", ["concurrency", "request_rate"])
def test_one_level_or_several(key: str):
    for given, levels in ((4, (4,)), ([4, 2], (4, 2)), ((1,), (1,))):
        (workload,) = sweep(workloads=[{"name": "w", key: given}]).workloads
        assert getattr(workload, key) == levels


def test_an_objective_and_constraints_at_levels_that_exist():
    workloads = [
        {"name": "chat", "concurrency": [1, 16]},
        {"name": "open", "request_rate": [0.5, 4]},
    ]
    constraints = [{"metric": "p99_ttft_ms", "max": 9, "workload": "open", "request_rate": 4}]
    objective = {"metric": "mean_itl_ms", "workload": "chat", "concurrency": 16}
    one = sweep(workloads=workloads, objective=objective, constraints=constraints)
    assert one.constraints[0].request_rate == 4
    with pytest.raises(ValidationError, match=r"objective\.workload: say which of chat, open"):
        sweep(workloads=workloads)


def test_a_cross_check_is_no_objective():
    chat = {"name": "chat", "concurrency": 1}
    check = {"name": "check", "concurrency": 1, "engine": "sglang"}
    assert sweep(workloads=[chat, check], objective={"workload": "chat"}).objective.workload
    with pytest.raises(ValidationError, match="'check' is a cross-check by sglang"):
        sweep(workloads=[chat, check], objective={"workload": "check"})
    with pytest.raises(ValidationError, match="it can't decide"):
        sweep(workloads=[check])


def test_less_latency_is_better_unless_the_metric_is_none():
    assert sweep(objective={"metric": "p99_ttft_ms"}).objective.goal == "minimize"
    assert sweep(objective={"metric": "request_throughput"}).objective.goal == "maximize"
    assert sweep(objective={"goal": "minimize"}).objective.metric == "output_throughput"
    with pytest.raises(ValidationError, match="maximizing mean_itl_ms finds the slowest"):
        sweep(objective={"metric": "mean_itl_ms", "goal": "maximize"})


def test_nothing_changes_afterwards():
    with pytest.raises(ValidationError, match="frozen"):
        sweep().name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_survives_the_way_through_json(path: Path):
    one = read_sweep(path)
    assert Sweep.model_validate(one.model_dump(mode="json")) == one
    assert Sweep.model_validate_json(one.model_dump_json()) == one


def test_overrides_reach_every_place():
    path = next(path for path in EXAMPLES if path.stem == "kimi-k2.5")
    one = read_sweep(
        path,
        [
            "search.repeats=5",
            "search.budget=90s",
            "axes.env.SGLANG_NEW=[0, 1]",
            "axes.args.mem-fraction-static=[0.8, 0.9]",
            "baseline.env.SGLANG_NEW=1",
            "exclude.0.env.SGLANG_NEW=0",
            "workloads.0.concurrency=[1, 64]",
            "server.args.tp=4",
            "server.env.NEW=x=y",
            "timeouts.ready=1h",
            "canary.enabled=false",
        ],
        host="elsewhere",
    )
    assert one.host == "elsewhere"
    assert (one.search.repeats, one.search.budget) == (5, 90.0)
    assert one.axes["env.SGLANG_NEW"] == ["0", "1"]
    assert one.axes["args.mem_fraction_static"] == [0.8, 0.9]
    assert one.baseline["env.SGLANG_NEW"] == 1
    assert one.exclude[0]["env.SGLANG_NEW"] == 0
    assert one.workloads[0].concurrency == (1, 64)
    assert one.server.args["tp"] == 4
    assert one.server.env["NEW"] == "x=y"
    assert one.timeouts.ready == 3600.0
    assert one.canary.enabled is False


def test_an_override_fills_a_key_that_is_empty(tmp_path: Path):
    text = "name: n\nserver: {model_path: m}\nsearch:\nworkloads: [{name: w, concurrency: 1}]\n"
    (tmp_path / "sweep.yaml").write_text(text)
    assert read_sweep(tmp_path / "sweep.yaml", ["search.repeats=2"]).search.repeats == 2


def test_the_schema_is_a_form():
    schema = Sweep.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    models = {"Sweep": schema, **schema["$defs"]}
    for model, described in models.items():
        assert described["description"], model
        assert described["additionalProperties"] is False
        for name, field in described["properties"].items():
            target = models[field["$ref"].rpartition("/")[2]] if "$ref" in field else field
            assert field.get("description") or target["description"], f"{model}.{name}"
            assert target["title"], f"{model}.{name}"
    assert models["Workload"]["properties"]["dataset"]["enum"] == [
        "random",
        "text",
        "shared-prefix",
        "file",
        "conversations",
    ]
    assert models["Objective"]["properties"]["goal"]["enum"] == ["maximize", "minimize"]


def test_the_form_s_defaults_satisfy_the_form():
    schema = Sweep.model_json_schema()
    for model in schema["$defs"].values():
        for field in model["properties"].values():
            if "default" in field:
                resolved = {**field, "$defs": schema["$defs"]}
                jsonschema.validate(field["default"], resolved)
    assert schema["$defs"]["Timeouts"]["properties"]["ready"]["default"] == "30m"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_satisfies_the_form(path: Path):
    dumped = read_sweep(path).model_dump(mode="json")
    jsonschema.validate(dumped, Sweep.model_json_schema())


def test_a_draft_model_is_asked_for_where_the_algorithm_needs_one():
    with pytest.raises(ValidationError, match="EAGLE3 needs a draft model"):
        sweep(axes={"speculative_steps": [0, 3]})
    sweep(axes={"speculative_steps": [0]})
    sweep(axes={"speculative_steps": [0, 3]}, speculative={"algorithm": "NGRAM"})


@pytest.mark.parametrize(("requests", "slots"), [(6, 4), (8, 64)])
def test_a_closed_loop_that_leaves_its_slots_empty_is_refused(requests, slots):
    workload = {"name": "chat", "concurrency": [1, slots], "requests": requests}
    with pytest.raises(ValidationError, match=f"{requests} at concurrency {slots} keep only"):
        sweep(workloads=[workload])
    sweep(workloads=[{**workload, "requests": 5 * slots}])


def test_what_persist_writes_no_axis_can_unset():
    server = {"model_path": "m", "env": {"NCCL_ALGO": "Ring"}}
    axes = {"env.NCCL_ALGO": ["Ring", None]}
    assert sweep(server=server, axes=axes).persist == "process"
    assert sweep(server=server, persist="sitecustomize", axes={"env.OTHER": ["1", None]})
    with pytest.raises(
        ValidationError, match=r"axes\.env\.NCCL_ALGO: null can't unset what persist"
    ):
        sweep(server=server, axes=axes, persist="sitecustomize")
