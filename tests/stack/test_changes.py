"""What of a stack changed since a sweep."""

from dataclasses import replace

from tasks.domain.facts import Finding, GpuState, PackageFacts, Severity, StackFacts, StackReport
from tasks.stack.changes import Change, changes_between
from tests.stack.factory import GPUS, KIMI, SOUND, with_system, with_torch, without


def changes(after: StackFacts, before: StackFacts = SOUND) -> list[Change]:
    reports = [StackReport("h", "/v/python", "f", each, ()) for each in (before, after)]
    return list(changes_between(*reports))


def test_nothing_changed() -> None:
    assert changes(SOUND) == []
    idle = replace(SOUND, gpus=tuple(replace(gpu, memory_used_mib=9) for gpu in GPUS))
    assert changes(with_system(idle, disk_free_bytes=1, shm_free_bytes=1)) == []


def test_versions_and_what_is_gone() -> None:
    packages = (PackageFacts("torch", "2.9.0", True), *SOUND.packages[1:])
    assert changes(replace(SOUND, packages=packages)) == [Change("torch", "2.9.1+cu130", "2.9.0")]
    assert changes(without(SOUND, "flashinfer")) == [Change("flashinfer", "0.6.3", "absent")]
    broken = without(SOUND, "flashinfer", "ImportError: x")
    assert changes(broken) == [Change("flashinfer", "0.6.3", "can't be imported")]
    assert changes(with_torch(SOUND, cudnn=91002)) == [Change("torch's cudnn", "91600", "91002")]


def test_variables_gpus_models_and_flags() -> None:
    assert changes(replace(SOUND, env={"NCCL_ALGO": "Ring"})) == [
        Change("variable NCCL_ALGO", "absent", "Ring")
    ]
    driver = replace(SOUND, gpus=tuple(replace(gpu, driver_version="590.1") for gpu in GPUS))
    assert changes(driver) == [Change("driver", "580.95.05", "590.1")]
    assert changes(replace(SOUND, gpus=GPUS[:7]))[0].name == "GPU 7"
    wide, narrow = (GpuState(0, pcie_width=w, pcie_gen=w // 4) for w in (16, 8))
    assert changes(replace(SOUND, gpu_states=(narrow,)), replace(SOUND, gpu_states=(wide,))) == [
        Change("GPU 0's pcie_width", "16", "8")
    ]
    whole, cut = (replace(SOUND, models=(replace(KIMI, bytes=size),)) for size in (9, 8))
    assert changes(cut, whole) == [Change("/models/kimi", "64 files, 9 bytes", "64 files, 8 bytes")]
    renamed = replace(SOUND, flags=SOUND.flags - {"cuda_graph_max_bs"} | {"cuda_graph_max"})
    assert changes(renamed) == [
        Change("flag --cuda-graph-max", "absent", "present"),
        Change("flag --cuda-graph-max-bs", "present", "absent"),
    ]
    assert changes(replace(SOUND, flags=frozenset())) == []


def test_findings_that_came_and_went() -> None:
    told = Finding(Severity.INFO, "told")
    old, new = Finding(Severity.WARNING, "old"), Finding(Severity.ERROR, "new")
    before = StackReport("h", "/v/python", "f", SOUND, (old, told))
    after = StackReport("h", "/v/python", "f", SOUND, (new,))
    assert changes_between(before, after) == (
        Change("warning: old", "present", "absent"),
        Change("error: new", "absent", "present"),
    )
