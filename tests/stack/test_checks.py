"""Each check with the one thing changed that it is about; a sound stack has no finding."""

from dataclasses import replace

import pytest

from settings.sweep import Sweep
from tasks.domain.facts import Finding, ModelFacts, PackageFacts, Severity, StackFacts
from tasks.stack.checks import check_stack
from tests.stack.factory import CPU, GPUS, KIMI, SOUND, sweep, with_system, with_torch, without

GONE = "cannot open shared object file: No such file or directory"
SYMBOL = "ImportError: /v/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEa"


def only(facts: StackFacts, plan: Sweep | None = None) -> Finding:
    (finding,) = check_stack(facts, plan)
    return finding


def verdicts(facts: StackFacts, plan: Sweep | None = None) -> list[tuple[Severity, str | None]]:
    return [(finding.severity, finding.mode) for finding in check_stack(facts, plan)]


def test_a_sound_stack_has_no_finding() -> None:
    assert check_stack(SOUND, None) == ()
    assert check_stack(replace(SOUND, models=(KIMI,)), sweep()) == ()


def test_an_interpreter_that_can_not_be_run_is_all_there_is_to_say() -> None:
    finding = only(StackFacts("/no/python", "", "", (), error="No such file or directory"))
    assert finding.severity is Severity.ERROR
    assert finding.summary == "/no/python can't be run"


def test_errors_come_first() -> None:
    facts = without(without(SOUND, "flashinfer"), "torch")
    assert [finding.severity for finding in check_stack(facts, None)] == [
        Severity.ERROR,
        Severity.WARNING,
    ]


@pytest.mark.parametrize("name", ["torch", "sglang", "sgl_kernel"])
def test_what_no_server_can_do_without(name: str) -> None:
    finding = only(without(SOUND, name))
    assert (finding.severity, finding.summary) == (Severity.ERROR, f"{name} is not installed")


@pytest.mark.parametrize("name", ["flash_attn", "deep_gemm", "transformers", "triton"])
def test_what_the_launcher_itself_would_miss_is_left_to_it(name: str) -> None:
    assert check_stack(without(SOUND, name), None) == ()


@pytest.mark.parametrize(
    ("error", "mode"),
    [
        (SYMBOL, "abi-undefined-symbol"),
        (f"ImportError: libnvrtc.so.12: {GONE}", "shared-lib-missing-wrong-major"),
        (f"ImportError: libcuda.so.1: {GONE}", "driver-not-visible"),
    ],
)
def test_kernels_that_do_not_load(error: str, mode: str) -> None:
    finding = only(without(SOUND, "sgl_kernel", error))
    assert (finding.severity, finding.mode, finding.evidence) == (Severity.ERROR, mode, error)
    assert finding.summary.startswith("sgl_kernel 0.3.21 can't be imported: ")


def test_a_cpu_needs_no_driver_no_kernels_and_no_gpu() -> None:
    broken = without(CPU, "sgl_kernel", f"ImportError: libcuda.so.1: {GONE}")
    assert verdicts(broken) == [
        (Severity.INFO, "driver-not-visible"),
        (Severity.INFO, None),
    ]
    assert verdicts(without(CPU, "flashinfer")) == [(Severity.INFO, None)]


def test_an_import_that_did_not_finish_is_no_error() -> None:
    finding = only(without(SOUND, "torch", "did not finish in time"))
    assert (finding.severity, finding.mode) == (Severity.WARNING, "startup-timeout-slow-import")


def test_a_slow_import() -> None:
    packages = (PackageFacts("torch", "2.9.1", True, 75.0), *SOUND.packages[1:])
    finding = only(replace(SOUND, packages=packages))
    assert finding.summary == "torch took 75 s to import"


def test_the_launcher_that_does_not_start() -> None:
    facts = replace(SOUND, options=(), flags_error="ImportError: cannot import name 'x'")
    finding = only(facts)
    assert (finding.severity, finding.evidence) == (Severity.ERROR, facts.flags_error)


def test_the_launcher_s_failure_is_not_said_twice() -> None:
    facts = replace(without(SOUND, "sgl_kernel", SYMBOL), options=(), flags_error=SYMBOL)
    assert len(check_stack(facts, None)) == 1


@pytest.mark.parametrize("error", ["did not finish in time", "--help lists no options"])
def test_a_launcher_about_which_nothing_is_known_is_no_error(error: str) -> None:
    assert only(replace(SOUND, options=(), flags_error=error)).severity is Severity.WARNING


def test_a_sitecustomize_that_raises() -> None:
    assert only(replace(SOUND, startup="Error in sitecustomize")).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("sglang", "env", "mode"),
    [
        ("0.5.6", {}, "cudnn-conv3d-check-no-bypass"),
        ("0.5.9", {}, "cudnn-conv3d-check"),
        ("0.5.9", {"SGLANG_DISABLE_CUDNN_CHECK": "1"}, None),
        ("0.5.23", {}, None),
    ],
)
def test_the_cudnn_that_sglang_refuses_is_never_an_error(
    sglang: str, env: dict[str, str], mode: str | None
) -> None:
    packages = (SOUND.packages[0], PackageFacts("sglang", sglang, True), *SOUND.packages[2:])
    facts = replace(with_torch(SOUND, cudnn=91002), packages=packages, env=env)
    assert verdicts(facts) == ([(Severity.WARNING, mode)] if mode else [])
    if mode:
        assert "cuDNN 9.10 is below 9.15" in only(facts).summary


def test_cudnn_beside_another_torch_is_not_judged() -> None:
    assert check_stack(with_torch(SOUND, cudnn=91002, version="2.8.0+cu128"), None) == ()
    assert check_stack(with_torch(SOUND, cudnn=None), None) == ()


@pytest.mark.parametrize(
    ("built", "serves"),
    [
        (["sm_80", "sm_90"], False),
        (["sm_80", "sm_100"], False),
        (["sm_120"], True),
        (["sm_120a"], True),
        (["sm_121"], False),
        (["sm_100a"], False),
        (["compute_90"], True),
        (["compute_130"], False),
        (["compute_90a"], False),
        (["compute_120a"], True),
        (["compute_120f"], True),
        (["compute_100f"], False),
        (["gfx942"], False),
        ([], True),
    ],
)
def test_the_architecture_that_torch_must_hold_code_for(built: list[str], serves: bool) -> None:
    found = verdicts(with_torch(SOUND, arch_list=built))
    assert found == ([] if serves else [(Severity.ERROR, "torch-build-lacks-arch")])


def test_kernels_for_another_cuda_major() -> None:
    wheels = {**SOUND.distributions, "flashinfer-jit-cache": "0.6.3+cu128"}
    finding = only(replace(SOUND, distributions=wheels))
    assert finding.severity is Severity.ERROR
    assert finding.summary == "flashinfer-jit-cache is built for CUDA 12, torch for CUDA 13"
    same_major = {**wheels, "flashinfer-jit-cache": "0.6.3+cu131"}
    assert check_stack(replace(SOUND, distributions=same_major), None) == ()


def test_two_cuda_runtimes() -> None:
    both = {"nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-cuda-runtime": "13.0.48"}
    assert verdicts(replace(SOUND, distributions=both)) == [(Severity.WARNING, "dual-cuda-runtime")]


def test_versions_that_sglang_did_not_ask_for() -> None:
    wheels = {**SOUND.distributions, "flashinfer-python": "0.6.1", "sgl-kernel": "0.4.0"}
    assert verdicts(replace(SOUND, distributions=wheels)) == [
        (Severity.WARNING, "flashinfer-below-minimum"),
        (Severity.INFO, None),
    ]
    local = {**SOUND.distributions, "sgl-kernel": "0.3.21+cu130"}
    assert check_stack(replace(SOUND, distributions=local), None) == ()


def test_parts_of_flashinfer_of_another_version() -> None:
    wheels = {**SOUND.distributions, "flashinfer-cubin": "0.6.2"}
    mode = "flashinfer-version-mismatch"
    assert verdicts(replace(SOUND, distributions=wheels)) == [(Severity.WARNING, mode)]


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"driver_cuda": 12080}, "driver-too-old"),
        ({"driver_status": "802"}, "fabric-manager-not-ready"),
        ({"driver_status": "803"}, "driver-too-old"),
        ({"driver_status": "100"}, None),
        ({"driver_cuda": None, "driver_status": ""}, None),
    ],
)
def test_the_driver(changes: dict[str, object], mode: str | None) -> None:
    found = verdicts(with_system(SOUND, **changes))
    assert found == ([(Severity.ERROR, mode)] if mode else [])


def test_gpus_that_nobody_sees() -> None:
    finding = only(replace(SOUND, gpus=(), gpus_error="can't run nvidia-smi"))
    assert (finding.severity, finding.evidence) == (Severity.WARNING, "can't run nvidia-smi")
    finding = only(with_torch(SOUND, device_count=0))
    assert (finding.severity, finding.mode) == (Severity.ERROR, "driver-not-visible")


def test_more_ranks_than_gpus() -> None:
    finding = only(replace(SOUND, gpus=GPUS[:4]), sweep())
    assert finding.summary == "server.args.tp is 8, but there are 4 GPUs"


def test_paths_of_the_models() -> None:
    speculative = {"draft_model_path": "/models/draft"}
    absent = (ModelFacts("/models/kimi", False), ModelFacts("/models/draft", False))
    facts = replace(SOUND, models=absent)
    assert verdicts(facts, sweep(speculative=speculative)) == [
        (Severity.ERROR, "model-path-missing"),
        (Severity.WARNING, "model-path-missing"),
    ]
    relative = sweep(server={"model_path": "./kimi"})
    facts = replace(SOUND, models=(ModelFacts("./kimi", False),))
    assert only(facts, relative).fix.startswith("write it")


def test_little_space() -> None:
    facts = with_system(SOUND, disk_free_bytes=1 << 30, shm_total_bytes=64 << 20)
    assert verdicts(facts) == [(Severity.WARNING, "disk-full"), (Severity.WARNING, "shm-too-small")]
    assert "/dev/shm is 64 MiB" in check_stack(facts, None)[1].summary
    single = replace(with_system(SOUND, shm_total_bytes=64 << 20), gpus=GPUS[:1])
    assert verdicts(single) == [(Severity.INFO, "shm-too-small")]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"TRITON_PTXAS_PATH": "12.4", "triton ptxas": "12.9"}, "doesn't know GPUs"),
        ({"TRITON_PTXAS_PATH": "", "triton ptxas": "12.8"}, "can't be run"),
        ({"TRITON_PTXAS_PATH": "12.8", "triton ptxas": "12.4"}, None),
        ({"triton ptxas": "12.4"}, "doesn't know GPUs"),
        ({"TRITON_PTXAS_PATH": "12.4", "triton ptxas-blackwell": "12.9"}, None),
        ({"TRITON_PTXAS_BLACKWELL_PATH": "12.4", "triton ptxas-blackwell": "12.9"},
         "doesn't know GPUs"),
    ],
)  # fmt: skip
def test_the_ptxas_that_triton_takes(tools: dict[str, str], said: str | None) -> None:
    findings = check_stack(with_system(SOUND, tools={"nvcc": "13.0", **tools}), None)
    assert [finding.mode for finding in findings] == (["triton-ptxas-too-old"] if said else [])
    assert all(said and said in finding.summary for finding in findings)


@pytest.mark.parametrize("home", ["/usr/local/cuda-12.8", ":/usr/local/cuda"])
def test_a_cuda_home_without_nvcc(home: str) -> None:
    facts = with_system(replace(SOUND, env={"CUDA_HOME": home}), tools={})
    assert only(facts).mode == "cuda-home-malformed"
