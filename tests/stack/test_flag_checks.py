"""A sweep's flags against the options of the installed SGLang."""

from dataclasses import replace
from pathlib import Path

import pytest

from settings.sweep import ArgValue
from tasks.domain.facts import Severity
from tasks.stack.flag_checks import check_flags, fault_of
from tasks.stack.help_text import parse_help
from tests.stack.factory import OPTIONS, SOUND, sweep

NEW = parse_help((Path(__file__).parent / "data" / "help-0.5.23.txt").read_text())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tp_size", 8),
        ("tp", 8),
        ("tensor_parallel_size", 8),
        ("attention_b", "triton"),
        ("attention_backend", "fa3"),
        ("trust_remote_code", True),
        ("no_such_flag", False),
        ("no_such_flag", None),
        ("attention_backend", None),
        ("model_checksum", True),
        ("lora_target_modules", ["q_proj", "all"]),
    ],
)
def test_what_sglang_would_take(name: str, value: ArgValue) -> None:
    assert fault_of(name, value, OPTIONS) is None


@pytest.mark.parametrize(
    ("name", "value", "mode", "said"),
    [
        ("atention_backend", "fa3", "flag-unknown", "did you mean 'attention_backend'?"),
        ("zzz", 1, "flag-unknown", "leave it out"),
        ("attention_backend", "fa4", "flag-bad-choice", "did you mean 'fa3'? It takes flashinfer,"),
        ("attention_backend", True, "flag-bad-choice", "give it one"),
        ("trust_remote_code", "yes", "flag-unknown", "write true or false"),
        ("lora_target_modules", ["q_proj", "o"], "flag-bad-choice", "it takes q_proj, k_proj, all"),
        ("speculative_num", 3, "flag-ambiguous",
         "write one of speculative_num_draft_tokens, speculative_num_steps"),
    ],
)  # fmt: skip
def test_what_it_would_refuse(name: str, value: ArgValue, mode: str, said: str) -> None:
    fault = fault_of(name, value, OPTIONS)
    assert fault is not None
    assert (fault.mode, fault.fix[: len(said)]) == (mode, said)


def test_a_renamed_flag_goes_by_its_new_name() -> None:
    assert fault_of("cuda_graph_max_bs", 128, NEW) is None
    assert fault_of("tp", 8, NEW) is None


def test_a_beginning_of_two_real_flags_is_ambiguous() -> None:
    fault = fault_of("cuda_graph_max", 128, NEW)
    assert fault is not None
    assert fault.mode == "flag-ambiguous"
    assert "cuda_graph_max_bs_decode, cuda_graph_max_bs_prefill" in fault.fix


def test_a_flag_of_all_trials_stops_the_sweep() -> None:
    wrong = sweep(server={"model_path": "/m", "args": {"attention_backend": "fa4"}})
    (finding,) = check_flags(SOUND, wrong)
    assert finding.severity is Severity.ERROR
    assert finding.summary == (
        "server.args.attention_backend: --attention-backend fa4 is not a value it takes"
    )


def test_a_bad_value_of_an_axis_costs_its_trials_only() -> None:
    axes = {"args.attention_backend": ["triton", "nosuch"], "args.zzz": [True, False]}
    findings = list(check_flags(SOUND, sweep(axes=axes)))
    assert [finding.severity for finding in findings] == [Severity.WARNING] * 2
    assert [finding.mode for finding in findings] == ["flag-bad-choice", "flag-unknown"]
    assert "axes.args.attention_backend=nosuch" in findings[0].summary


def test_an_axis_without_a_good_value_stops_the_sweep() -> None:
    (finding,) = check_flags(SOUND, sweep(axes={"args.attention_backend": ["nosuch"]}))
    assert finding.severity is Severity.ERROR
    assert finding.evidence == "no value of this axis can be launched"


def test_a_common_flag_that_an_axis_overrides_is_judged_there() -> None:
    server = {"model_path": "/m", "args": {"attention_backend": "nosuch"}}
    assert not list(check_flags(SOUND, sweep(server=server, axes={
        "args.attention_backend": ["triton", "fa3"]})))  # fmt: skip


def test_the_named_axes_are_spelt_out() -> None:
    axes = {"cuda_graph_max_bs": [64], "speculative_steps": [0, 3], "nccl_channels": [8]}
    eagle = {"draft_model_path": "/m/draft"}
    assert not list(check_flags(SOUND, sweep(axes=axes, speculative=eagle)))
    speculative = {"algorithm": "EAGLE9", "draft_model_path": "/m/draft"}
    (finding,) = check_flags(SOUND, sweep(axes=axes, speculative=speculative))
    assert finding.summary.startswith("axes.speculative_steps=3: --speculative-algorithm EAGLE9")


def test_without_options_or_a_sweep_nothing_is_judged() -> None:
    wrong = sweep(server={"model_path": "/m", "args": {"zzz": 1}})
    assert not list(check_flags(replace(SOUND, options=()), wrong))
    assert not list(check_flags(SOUND, None))
