"""Room, limits and compilers."""

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.facts import PlaceFacts, Severity, StackFacts
from tasks.stack.checks import check_stack
from tasks.stack.probe.machine import memory, place
from tasks.stack.probe.toolkit import parse_cache
from tests.stack.factory import GPUS, SOUND, sweep, with_system, with_torch


def modes(facts: StackFacts) -> list[str | None]:
    found = check_stack(facts, sweep())
    assert {finding.severity for finding in found} <= {Severity.WARNING}
    return [finding.mode for finding in found]


def test_places_that_are_full_each_file_system_once() -> None:
    little = PlaceFacts("/home", free_bytes=100 << 20)
    places = {"run folder": little, "cache": little, "hub cache": PlaceFacts("/d", 1 << 40, 100)}
    assert modes(with_system(SOUND, places=places)) == ["disk-full", "disk-full"]
    assert "100 inodes" in check_stack(with_system(SOUND, places=places), None)[1].summary
    locked = {"Triton cache": PlaceFacts("/root/.triton", 1 << 40, writable=False)}
    assert modes(with_system(SOUND, places=locked)) == ["permission-denied-cache"]


def test_a_place_that_is_not_there_yet(tmp_path: Path) -> None:
    told = place(str(tmp_path / "a" / "b"))
    assert told["path"] == str(tmp_path / "a" / "b")
    assert told["writable"]
    assert told["free_bytes"] > 0


def test_shared_memory_full_of_leftovers() -> None:
    assert modes(with_system(SOUND, shm_free_bytes=10 << 20)) == ["shm-full-leaked-segments"]


def test_limits() -> None:
    assert modes(with_system(SOUND, limits={"nofile": (1024, 2048)})) == [None]
    assert modes(with_system(SOUND, limits={"nofile": (1024, -1)})) == []
    assert modes(with_system(SOUND, memory_limit_bytes=16 << 30)) == ["host-oom-kill"]
    assert memory()["total"] > memory()["available"] > 0


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"programs": {"cc": "", "c++": "", "ninja": "/bin/ninja"}}, None),
        ({"python_headers": False}, None),
        ({"tools": {"triton ptxas": "12.8"}}, "nvcc-not-found"),
        ({"tools": {"triton ptxas": "12.8", "nvcc": "12.4"}}, "flashinfer-jit-build-failed"),
        ({"headers_missing": ("curand.h",)}, "flashinfer-jit-header-missing"),
        ({"programs": {"cc": "gcc", "c++": "g++", "ninja": ""}}, "flashinfer-jit-build-failed"),
        ({"build_locks": ("/home/u/.cache/torch_extensions/x/lock",)}, "hang-stale-jit-lock"),
    ],
)
def test_what_kernels_are_built_with(changes: dict[str, object], mode: str | None) -> None:
    assert modes(with_system(SOUND, **changes)) == [mode]


def test_kernels_that_are_built_already_need_no_nvcc() -> None:
    wheels = {**SOUND.distributions, "flashinfer-jit-cache": "0.6.3+cu130"}
    facts = with_system(SOUND, tools={"triton ptxas": "12.8"})
    assert modes(replace(facts, distributions=wheels)) == []


def test_the_list_of_the_ptxas_counts_more_than_its_release() -> None:
    listed = {"triton ptxas": ("90", "100", "120")}
    old = {"triton ptxas": "12.4", "nvcc": "13.0"}
    assert modes(with_system(SOUND, tools=old, architectures=listed)) == []
    assert modes(with_system(SOUND, architectures={"triton ptxas": ("90", "100")})) == [
        "triton-ptxas-too-old"
    ]


def test_gpus_that_a_variable_hides() -> None:
    (finding,) = check_stack(with_torch(SOUND, device_count=4), sweep())
    assert finding.summary == "server.args.tp is 8, but there are 4 GPUs"
    assert (finding.evidence, finding.mode) == ("torch sees 4 of 8", "too-few-gpus")
    assert check_stack(replace(SOUND, gpus=GPUS), sweep()) == ()


def test_ranks_are_spread_over_the_nodes() -> None:
    asked = {"model_path": "/models/kimi", "args": {"tp": 16, "nnodes": 2}}
    assert "too-few-gpus" not in {f.mode for f in check_stack(SOUND, sweep(server=asked))}
    asked["args"]["tp"] = 32
    found = check_stack(SOUND, sweep(server=asked))
    (finding,) = (one for one in found if one.mode == "too-few-gpus")
    assert finding.summary == "server.args.tp is 32, but there are 8 GPUs on each of 2 nodes"
    assert finding.fix == "set tp to at most 16"


def test_the_loader_s_cache() -> None:
    listed = (
        "123 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13\n"
        "\tlibz.so.1 (libc6,AArch64, OS ABI: Linux 3.7.0) => /lib/aarch64-linux-gnu/libz.so.1\n"
        "\tlibz.so.1 (libc6) => /lib/i386-linux-gnu/libz.so.1\n"
    )
    assert parse_cache(listed) == [
        ("libcudart.so.13", "/usr/local/cuda/lib64/libcudart.so.13"),
        ("libz.so.1", "/lib/aarch64-linux-gnu/libz.so.1"),
    ]
