"""For which GPUs a library holds code."""

import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.stack.checks import check_stack
from tasks.stack.probe.elf import Elf
from tasks.stack.probe.fatbin import architectures
from tests.stack.factory import SOUND
from tests.stack.pretend import compile_shared

KERNEL = "__global__ void k(float *x) { x[threadIdx.x] += 1.f; }\n"
SUFFIXES = {"": 0, "a": 1 << 20, "f": 1 << 21}


def entry(kind: int, architecture: int, suffix: str = "", content: bytes = b"x" * 40) -> bytes:
    """An entry as nvcc 13.0 writes it: 64 bytes of header and the content."""
    header = struct.pack("<HHIQ", kind, 257, 64, len(content)) + b"\0" * 12
    header += struct.pack("<IQQ", architecture, 0, SUFFIXES[suffix] | 0x11)
    return header.ljust(64, b"\0") + content


def container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def library(folder: Path, content: bytes) -> Elf:
    """A shared object with these bytes as its fat binary."""
    numbers = ", ".join(map(str, content)) or "0"
    source = folder / "x.c"
    where = '__attribute__((section(".nv_fatbin")))'
    source.write_text(f"{where} const unsigned char code[] = {{{numbers}}};\n")
    compile_shared(source, folder / "x.so")
    return Elf(str(folder / "x.so"))


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")


@needs_gcc
def test_compiled_code_and_code_for_the_driver(tmp_path: Path) -> None:
    first = container(entry(2, 80), entry(2, 90, "a"), entry(1, 120))
    second = container(entry(2, 100, "f"), entry(2, 80))
    whole = first + b"\0" * (-len(first) % 8) + second
    found = architectures(library(tmp_path, whole))
    assert found == ["compute_120", "sm_100f", "sm_80", "sm_90a"]


@needs_gcc
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 64, container()[:12], container(entry(2, 80))[:40], b"\xff" * 99]
)
def test_what_reads_otherwise_tells_nothing(tmp_path: Path, content: bytes) -> None:
    assert architectures(library(tmp_path, content)) == []


@needs_gcc
def test_a_library_without_device_code(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int x;\n")
    compile_shared(tmp_path / "x.c", tmp_path / "x.so")
    assert architectures(Elf(str(tmp_path / "x.so"))) == []


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc here")
def test_what_nvcc_writes(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    wanted = ["arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a"]
    wanted.append("arch=compute_90,code=compute_90")
    flags = [word for each in wanted for word in ("-gencode", each)]
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", *flags]
    files = [str(tmp_path / "k.cu"), "-o", str(tmp_path / "k.so")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this nvcc doesn't compile: {done.stderr[-200:]}")
    assert architectures(Elf(str(tmp_path / "k.so"))) == ["compute_90", "sm_80", "sm_90a"]


@pytest.mark.parametrize(
    ("files", "good"),
    [
        ({"/v/sgl_kernel/sm100/common_ops.so": ("sm_100a", "sm_120a")}, True),
        ({"/v/sgl_kernel/sm90/common_ops.so": ("sm_90a",)}, False),
        ({"/v/sgl_kernel/a.so": ("sm_90a",), "/v/sgl_kernel/b.so": ("compute_80",)}, True),
        ({"/v/other/a.so": ("sm_90a",)}, True),
        ({}, True),
    ],
)
def test_kernels_for_the_gpu(files: dict[str, tuple[str, ...]], good: bool) -> None:
    found = check_stack(replace(SOUND, device_code=files), None)
    assert [finding.mode for finding in found] == ([] if good else ["no-kernel-image"])
