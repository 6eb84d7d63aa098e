"""Compiled extensions examined without loading them, and what follows from what they lack."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.facts import ExtensionFacts, Severity, StackFacts, SymbolFacts
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.gather import gather_facts
from tasks.stack.probe.elf import Elf, NotShared, gnu_hash
from tasks.stack.probe.extensions import qualified, readable
from tests.stack.factory import CPU, SOUND, with_torch, without
from tests.stack.pretend import Environment, compile_shared

SIGNED = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
UNSIGNED = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
PRETTY = "c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, {}, bool)"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")


def build(folder: Path, name: str, text: str, *options: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(text)
    target = folder / name
    compile_shared(source, target, *options)
    return target


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_symbols_as_the_linker_wrote_them(tmp_path: Path, style: str) -> None:
    text = "\n".join(f"int defined_{n}(void) {{ return {n}; }}" for n in range(500))
    text += "\nint wanted(void); int __attribute__((weak)) perhaps(void);"
    text += "\nint call(void) { return wanted() + (perhaps ? perhaps() : 0); }\n"
    elf = Elf(str(build(tmp_path, "lib.so", text, f"-Wl,--hash-style={style}")))
    names = set(elf.undefined())
    assert b"wanted" in names
    assert b"perhaps" not in names
    assert all(elf.defines(n, gnu_hash(n)) for n in (b"defined_%d" % i for i in range(500)))
    assert not any(elf.defines(n, gnu_hash(n)) for n in (b"wanted", b"defined_", b"defined_500"))


def test_what_is_no_shared_object(tmp_path: Path) -> None:
    whole = build(tmp_path, "lib.so", "int x;").read_bytes()
    for content in (b"", b"#!/bin/sh\n", whole[:200], whole[:1000], b"\x7fELF\x02\x01" * 50):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(NotShared):
            list(Elf(str(tmp_path / "file")).undefined())


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_reader_agrees_with_nm_on_the_c_library() -> None:
    if shutil.which("nm") is None:
        pytest.skip("there is no nm here")
    path = output("gcc", "-print-file-name=libstdc++.so.6").strip()
    rows = [line.split() for line in output("nm", "-D", path).splitlines()]
    wanted = {row[1].split("@")[0].encode() for row in rows if row[0] == "U"}
    elf = Elf(path)
    assert set(elf.undefined()) == wanted
    assert any(version.startswith("GLIBCXX_3.4.") for version in elf.versions_defined())


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        (SIGNED, "_ZN3c104cuda29c10_cuda_check_implementationE"),
        ("_ZNK3c106SymInt6sym_neERKS0_", "_ZNK3c106SymInt6sym_neE"),
        ("cuGreenCtxStreamCreate", ""),
        ("_ZN3c106detailL9something", ""),
    ],
)
def test_the_name_before_the_parameters(name: str, prefix: str) -> None:
    assert qualified(name.encode()) == prefix.encode()


def test_names_as_people_read_them() -> None:
    assert readable(SIGNED.encode()) == PRETTY.format("int")
    assert readable(b"cuGreenCtxStreamCreate") == "cuGreenCtxStreamCreate"


async def examined(host: Host) -> StackFacts:
    return await gather_facts(host, host.settings.stacks[0], None)


async def test_a_symbol_that_torch_has_with_other_parameters(
    host: Host, broken: Environment, tmp_path: Path
) -> None:
    broken.module("torch", "__version__ = '2.9.1'\n")
    (broken.site / "torch" / "lib").mkdir()
    own = build(tmp_path, "libc10_cuda.so", f"int {UNSIGNED}(void) {{ return 1; }}")
    shutil.copy(own, broken.site / "torch" / "lib" / own.name)
    broken.module("sgl_kernel", "")
    broken.extension("sgl_kernel", "sound", "")
    broken.extension("sgl_kernel", "flash_ops", f"{SIGNED}();", f"void {SIGNED}(void);")
    facts = await examined(host)
    assert facts.extensions_examined == 2
    (extension,) = facts.extensions
    assert extension.path.endswith("sgl_kernel/flash_ops.abi3.so")
    assert extension.undefined == (
        SymbolFacts(SIGNED, PRETTY.format("int"), (PRETTY.format("unsigned int"),)),
    )
    (finding,) = [f for f in check_stack(facts, None) if f.summary.startswith("sgl_kernel: ")]
    assert (finding.severity, finding.mode) == (Severity.WARNING, "abi-undefined-symbol")
    assert f"torch has {PRETTY.format('unsigned int')}" in finding.evidence


async def test_the_symbol_that_an_import_misses_is_readable(
    host: Host, broken: Environment
) -> None:
    broken.module("sgl_kernel", "from sgl_kernel import common_ops\n")
    broken.extension("sgl_kernel", "common_ops", f"{SIGNED}();", f"void {SIGNED}(void);")
    facts = await examined(host)
    assert facts.symbols == {SIGNED: PRETTY.format("int")}
    (finding,) = [f for f in check_stack(facts, None) if f.summary.startswith("sgl_kernel")]
    assert finding.severity is Severity.ERROR
    assert PRETTY.format("int") in finding.summary


async def test_a_library_that_lacks_a_version_and_one_that_is_not_there(
    host: Host, broken: Environment, tmp_path: Path
) -> None:
    text = "int answer(void) { return 42; }\n"
    script = tmp_path / "versions"
    options = ("-Wl,-soname,libpretend.so.1", f"-Wl,--version-script={script}")
    script.write_text("GLIBCXX_3.4.99 { answer; };\n")
    library = build(tmp_path, "libpretend.so.1", text, *options)
    broken.module("sgl_kernel", "")
    declared, rpath = "int answer(void);", f"-Wl,--disable-new-dtags,-rpath,{tmp_path}"
    broken.extension("sgl_kernel", "found", "answer();", declared, str(library), rpath)
    broken.extension("sgl_kernel", "lost", "answer();", declared, str(library))
    sound = await examined(host)
    assert [each.path.rpartition("/")[2] for each in sound.extensions] == ["lost.abi3.so"]
    script.write_text("GLIBCXX_3.4.98 { answer; };\n")
    build(tmp_path, "libpretend.so.1", text, *options)
    facts = await examined(host)
    old, lost = facts.extensions
    assert old.versions == (f"{tmp_path}/libpretend.so.1 lacks GLIBCXX_3.4.99",)
    assert (lost.libraries, lost.undefined_count) == (("libpretend.so.1",), 0)
    found = [(f.severity, f.mode) for f in check_stack(facts, None) if "sgl_kernel: " in f.summary]
    assert found == [
        (Severity.WARNING, "glibcxx-too-old"),
        (Severity.WARNING, "shared-lib-not-on-path"),
    ]


LACKING = ExtensionFacts(
    "sgl_kernel", "/v/flash_ops.so", undefined_count=1, undefined=(SymbolFacts("_ZN3c10", "c10"),)
)


def test_what_an_import_tells_is_not_told_twice_and_a_cpu_needs_no_kernels() -> None:
    lacking = replace(SOUND, extensions=(LACKING,))
    assert [f.mode for f in check_stack(lacking, None)] == ["abi-undefined-symbol"]
    failed = without(lacking, "sgl_kernel", "ImportError: x.so: undefined symbol: _ZN3c10")
    assert [f.severity for f in check_stack(failed, None)] == [Severity.ERROR]
    on_cpu = check_stack(replace(CPU, extensions=(LACKING,)), None)
    assert {f.severity for f in on_cpu} == {Severity.INFO}


def test_many_files_with_one_fault_are_one_finding_and_the_driver_s_library_is_none() -> None:
    many = tuple(
        ExtensionFacts("flashinfer_jit_cache", f"/v/{n}.so", libraries=("libcudart.so.12",))
        for n in range(40)
    )
    driver = ExtensionFacts("deep_gemm", "/v/x.so", libraries=("libcuda.so.1",))
    (finding,) = check_stack(replace(SOUND, extensions=(*many, driver)), None)
    assert "0.so (and 39 more files)" in finding.summary
    assert finding.mode == "shared-lib-missing-wrong-major"


@pytest.mark.parametrize(
    ("paths", "mode"),
    [
        (["/v/nvidia/cu13/lib/libcudart.so.13", "/v/nvidia/cuda_runtime/lib/libcudart.so.12"],
         "dual-cuda-runtime"),
        (["/v/nvidia/cudnn/lib/libcudnn.so.9", "/v/nvidia/cudnn/lib/libcudnn_ops.so.9"], None),
        (["/v/nvidia/cudnn/lib/libcudnn.so.9", "/usr/lib/libcudnn_ops.so.9"],
         "cudnn-sublibrary-mismatch"),
        (["/v/cublas/lib/libcublas.so.13", "/v/cublas/lib/libcublasLt.so.13"], None),
        (["/v/lib/libnvrtc.so.13", "/v/lib/libnvrtc-builtins.so.13.0"], None),
        (["/v/nvidia/nccl/lib/libnccl.so.2", "/usr/lib/libnccl.so.2"], "nccl-library-mismatch"),
    ],
)  # fmt: skip
def test_a_library_that_is_there_twice(paths: list[str], mode: str | None) -> None:
    facts = replace(SOUND, loaded={"torch": tuple(paths), "flashinfer": tuple(paths)})
    assert [f.mode for f in check_stack(facts, None)] == ([mode] if mode else [])


@pytest.mark.parametrize(
    ("wheels", "mode"),
    [
        (["nvidia-cudnn-cu13"], None),
        (["nvidia-cudnn-cu12"], "cudnn-not-initialized"),
        (["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"], "cudnn-sublibrary-mismatch"),
        (["nvidia-nccl-cu12"], "nccl-library-mismatch"),
    ],
)
def test_cuda_s_wheels(wheels: list[str], mode: str | None) -> None:
    told = {**SOUND.distributions, **dict.fromkeys(wheels, "9.16.0")}
    found = [f.mode for f in check_stack(replace(SOUND, distributions=told), None)]
    assert found == ([mode] if mode else [])


def test_the_cudnn_that_torch_refuses() -> None:
    said = "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (9, 16, 0)"
    (finding,) = check_stack(with_torch(SOUND, cudnn=None, cudnn_error=said), None)
    assert (finding.severity, finding.mode) == (Severity.ERROR, "cudnn-version-incompatible")
