from dataclasses import replace

import pytest

from tasks.domain.configuration import ServerConfiguration, Trial
from tasks.domain.diagnosis import Action, Diagnosis, Evidence, Phase
from tasks.failures.diagnosis import diagnose
from tasks.failures.spread import spread


def trial(name: str, **args) -> Trial:
    return Trial(name, args, ServerConfiguration("/m", args, {"NCCL_ALGO": "Ring"}, "python3"))


def ill(mode: str, *lines: str) -> Diagnosis:
    evidence = tuple(Evidence(number, line) for number, line in enumerate(lines, 1))
    return Diagnosis(mode, Phase.GRAPH_CAPTURE, Action.PRUNE, "It failed.", evidence=evidence)


def fated(diagnosis: Diagnosis, failed: Trial, *others: Trial) -> set[str]:
    return set(spread(diagnosis, failed, others))


FAILED = trial("128", tp=8, cuda_graph_max_bs=128)


def test_larger_graphs_fail_too_and_smaller_ones_may_not():
    others = [
        trial("64", tp=8, cuda_graph_max_bs=64),
        trial("256", tp=8, cuda_graph_max_bs=256),
        trial("256-tp4", tp=4, cuda_graph_max_bs=256),
        trial("unset", tp=8),
        trial("256-fraction", tp=8, cuda_graph_max_bs=256, mem_fraction_static=0.7),
    ]
    reasons = spread(ill("oom-cuda-graph-capture"), FAILED, others)
    assert set(reasons) == {"256"}
    assert reasons["256"] == (
        "oom-cuda-graph-capture already with tp=8 cuda_graph_max_bs=128: cuda_graph_max_bs larger,"
        " everything else equal"
    )


@pytest.mark.parametrize("change", [{"model_path": "/n"}, {"env": {}}, {"stack": "other"}])
def test_another_model_environment_or_stack_shares_no_fate(change):
    other = trial("256", tp=8, cuda_graph_max_bs=256)
    other = replace(other, configuration=replace(other.configuration, **change))
    assert not spread(ill("oom-cuda-graph-capture"), FAILED, [other])


def test_a_smaller_fraction_leaves_even_less_to_the_cache():
    failed = trial("0.8", mem_fraction_static=0.8)
    others = [trial("0.7", mem_fraction_static=0.7), trial("0.9", mem_fraction_static=0.9)]
    assert fated(ill("kv-alloc-not-enough-memory"), failed, *others) == {"0.7"}


def test_weights_that_dont_fit_dont_fit_whatever_comes_after_them():
    others = [trial("64", tp=8, cuda_graph_max_bs=64), trial("tp4", tp=4, cuda_graph_max_bs=128)]
    assert fated(ill("oom-weight-load"), FAILED, *others) == {"64"}


def test_an_unknown_flag_is_unknown_with_any_value_and_any_model():
    line = "launch_server.py: error: unrecognized arguments: --enable-foo 3"
    diagnosis = diagnose(line, 2)
    assert diagnosis is not None
    failed = trial("a", enable_foo=3, tp=8)
    elsewhere = trial("d", enable_foo=3)
    elsewhere = replace(elsewhere, configuration=replace(elsewhere.configuration, stack="new"))
    others = [trial("b", enable_foo=5, tp=4), trial("c", tp=8), elsewhere]
    assert fated(diagnosis, failed, *others) == {"b"}


def test_a_bad_choice_is_bad_wherever_it_is_chosen():
    line = (
        "sglang serve: error: argument --attention-backend: invalid choice: 'x' (choose from 'tp')"
    )
    diagnosis = diagnose(line, 2)
    assert diagnosis is not None
    failed = trial("a", attention_backend="x", tp=8)
    others = [trial("b", attention_backend="x", tp=4), trial("c", attention_backend="fa3", tp=8)]
    assert fated(diagnosis, failed, *others) == {"b"}


def test_speculation_that_a_backend_refuses_is_refused_whatever_else_varies():
    failed = trial("a", attention_backend="trtllm_mla", speculative_eagle_topk=4, tp=8)
    others = [
        trial("b", attention_backend="trtllm_mla", speculative_eagle_topk=4, tp=4),
        trial("c", attention_backend="trtllm_mla", speculative_eagle_topk=1, tp=8),
        trial("d", attention_backend="trtllm_mla", tp=8),
    ]
    assert fated(ill("spec-topk-unsupported"), failed, *others) == {"b"}


def test_a_conflict_needs_both_flags_named():
    line = "AssertionError: chunked_prefill_size must be divisible by page_size"
    failed = trial("a", chunked_prefill_size=100, page_size=64, tp=8)
    others = [
        trial("b", chunked_prefill_size=100, page_size=64, tp=4),
        trial("c", chunked_prefill_size=128, page_size=64, tp=8),
    ]
    assert fated(ill("flag-conflict", line), failed, *others) == {"b"}
    assert not spread(ill("flag-conflict", "ValueError: page_size is bad"), failed, others)


def test_what_has_no_rule_spreads_to_nothing():
    assert not spread(ill("gpu-hardware-fault"), FAILED, [trial("x", tp=8)])
    assert not spread(ill("unknown"), FAILED, [trial("x", tp=8, cuda_graph_max_bs=256)])
