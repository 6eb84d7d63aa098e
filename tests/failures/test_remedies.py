from tasks.domain.configuration import ServerConfiguration
from tasks.domain.diagnosis import Action, Diagnosis, Phase, Remedy
from tasks.failures.remedies import (
    NEXT_STACK,
    NextStep,
    Prune,
    Retry,
    Standing,
    Stop,
    apply,
    inapplicable,
)
from tasks.failures.remedies import next_step as decide

LOWER = Remedy("lower", scale_args={"mem_fraction_static": 0.93})
HIGHER = Remedy("raise", scale_args={"mem_fraction_static": 1.08})
OFF = Remedy("off", args={"disable_custom_all_reduce": True})
CHECK = Remedy("check off", env={"SGLANG_DISABLE_CUDNN_CHECK": "1"})


def ill(action: Action, remedy: Remedy | None = None, mode: str = "some-mode") -> Diagnosis:
    return Diagnosis(mode, Phase.START, action, "It failed.", remedy)


def next_step(
    diagnosis: Diagnosis, tried: tuple[Remedy, ...], made: int, most: int, **more: int
) -> NextStep:
    return decide(diagnosis, Standing(tried, made, most, **more))


def test_a_prune_prunes_and_a_stop_stops():
    assert next_step(ill(Action.PRUNE), (), 1, 3) == Prune("some-mode: It failed.")
    assert next_step(ill(Action.STOP), (), 1, 3) == Stop("some-mode: It failed.")


def test_a_remedy_is_added_to_those_in_force():
    assert next_step(ill(Action.RETRY, LOWER), (OFF,), 1, 3) == Retry((OFF, LOWER))


def test_a_remedy_is_used_once():
    step = next_step(ill(Action.RETRY, LOWER), (LOWER,), 2, 3)
    assert isinstance(step, Prune)
    assert "came back in spite of the remedy" in step.reason


def test_a_retry_without_a_remedy_happens_once():
    first = next_step(ill(Action.RETRY), (), 1, 3)
    assert isinstance(first, Retry)
    assert isinstance(next_step(ill(Action.RETRY), first.remedies, 2, 3), Prune)


def test_opposite_remedies_end_the_trial():
    step = next_step(ill(Action.RETRY, HIGHER), (LOWER,), 2, 5)
    assert isinstance(step, Prune)
    assert "mem_fraction_static" in step.reason


def test_contradicting_settings_end_the_trial():
    on = Remedy("on", args={"disable_custom_all_reduce": False})
    assert isinstance(next_step(ill(Action.RETRY, on), (OFF,), 2, 5), Prune)


def test_there_are_no_more_than_so_many_launches():
    assert isinstance(next_step(ill(Action.RETRY, LOWER), (), 2, 3), Retry)
    step = next_step(ill(Action.RETRY, LOWER), (), 3, 3)
    assert isinstance(step, Prune)
    assert step.reason.endswith("Given up after 3 launches.")


def test_a_fault_of_the_stack_moves_on_to_the_next_stack():
    fault = ill(Action.STOP, mode="abi-undefined-symbol")
    assert next_step(fault, (CHECK,), 1, 3, stacks_left=2) == Retry((NEXT_STACK,))
    assert next_step(fault, (NEXT_STACK,), 2, 3, stacks_left=1) == Retry((NEXT_STACK, NEXT_STACK))
    assert isinstance(next_step(fault, (NEXT_STACK,), 2, 3, stacks_left=0), Stop)
    assert isinstance(next_step(fault, (), 3, 3, stacks_left=1), Prune)


def test_another_stack_doesnt_help_against_a_fault_of_the_host():
    fault = ill(Action.STOP, mode="gpu-hardware-fault")
    assert isinstance(next_step(fault, (), 1, 3, stacks_left=2), Stop)


def test_apply_puts_settings_into_a_configuration_and_leaves_the_original():
    asked = ServerConfiguration("/m", {"tp": 8}, {"NCCL_ALGO": "Ring"})
    given = apply(asked, (OFF, CHECK))
    assert given.args == {"tp": 8, "disable_custom_all_reduce": True}
    assert given.env == {"NCCL_ALGO": "Ring", "SGLANG_DISABLE_CUDNN_CHECK": "1"}
    assert asked.args == {"tp": 8}


def test_apply_scales_from_the_value_or_the_default():
    assert apply(ServerConfiguration("/m"), (LOWER,)).args == {"mem_fraction_static": 0.818}
    set_to = ServerConfiguration("/m", {"mem_fraction_static": 0.8})
    assert apply(set_to, (HIGHER,)).args == {"mem_fraction_static": 0.864}


def test_a_fraction_stays_one():
    full = ServerConfiguration("/m", {"mem_fraction_static": 0.94})
    assert apply(full, (HIGHER,)).args == {"mem_fraction_static": 0.95}


def test_scaling_keeps_whole_numbers_whole_and_leaves_what_is_not_set():
    half = Remedy("half", scale_args={"cuda_graph_max_bs": 0.5, "chunked_prefill_size": 0.5})
    asked = ServerConfiguration("/m", {"cuda_graph_max_bs": 25})
    assert apply(asked, (half,)).args == {"cuda_graph_max_bs": 12, "chunked_prefill_size": None}


def test_a_renamed_flag_keeps_its_value():
    rename = Remedy("full", rename_args={"cuda_graph_max_bs": "cuda_graph_max_bs_decode"})
    asked = ServerConfiguration("/m", {"cuda_graph_max_bs": 128, "tp": 8})
    assert apply(asked, (rename,)).args == {"cuda_graph_max_bs_decode": 128, "tp": 8}


def test_a_trial_that_names_its_stack_leaves_the_other_stacks_trials_alone():
    fault = ill(Action.STOP, mode="abi-undefined-symbol")
    step = next_step(fault, (), 1, 3, others_have_stacks=True)
    assert isinstance(step, Prune)
    assert step.reason.endswith("Trials with other stacks go on.")


def test_a_vague_failure_gives_up_one_configuration_where_the_host_serves_another():
    vague = ill(Action.STOP, mode="scheduler-child-died")
    assert isinstance(next_step(vague, (), 1, 3), Stop)
    step = next_step(vague, (), 1, 3, host_serves=True)
    assert isinstance(step, Prune)
    assert "so the sweep goes on" in step.reason
    plain = ill(Action.STOP, mode="gpu-hardware-fault")
    assert isinstance(next_step(plain, (), 1, 3, host_serves=True), Stop)


def test_what_the_host_lacks_for_a_remedy_needs_a_person_or_another_stack():
    gated = ill(Action.RETRY, CHECK, "hub-gated-but-cached")
    step = inapplicable(gated, ["no whole snapshot"], Standing((), 1, 3))
    assert step == Stop(
        "hub-gated-but-cached: It failed. That can't be done here (check off): no whole snapshot."
    )
    ptxas = ill(Action.RETRY, CHECK, "triton-ptxas-too-old")
    assert inapplicable(ptxas, ["x"], Standing((), 1, 3, stacks_left=1)) == Retry((NEXT_STACK,))
    assert isinstance(inapplicable(ptxas, ["x"], Standing((), 3, 3, stacks_left=1)), Prune)
    lock = ill(Action.RETRY, CHECK, "hang-stale-jit-lock")
    assert isinstance(inapplicable(lock, ["process 7 lives"], Standing((), 1, 3)), Prune)


def test_a_folder_is_put_before_those_that_were_asked_for():
    path = Remedy("path", env={"LD_LIBRARY_PATH": "/new"})
    asked = ServerConfiguration("/m", {}, {"LD_LIBRARY_PATH": "/old:/older"})
    assert apply(asked, (path,)).env == {"LD_LIBRARY_PATH": "/new:/old:/older"}
    assert apply(ServerConfiguration("/m"), (path,)).env == {"LD_LIBRARY_PATH": "/new"}
