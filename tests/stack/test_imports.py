"""Why imports fail, in the words of real reports."""

import pytest

from tasks.stack.imports import cause_of, deciding_line

COMMON_OPS = """\
ImportError:{blank}
[sgl_kernel] CRITICAL: Could not load any common_ops library!

Attempted locations:
1. Architecture-specific pattern: /venv/sgl_kernel/sm100/common_ops.* - found files: ['x.so']
2. Fallback pattern: /venv/sgl_kernel/common_ops.* - found files: []
3. Standard Python import: common_ops - failed

Please ensure sgl_kernel is properly installed with:
pip install --upgrade sgl_kernel

Error details from previous import attempts:
- ImportError: {error}
- ModuleNotFoundError: No module named 'common_ops'
"""
SYMBOL = "/venv/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: "
GONE = "cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("error", "mode"),
    [
        (SYMBOL + "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib", "abi-undefined-symbol"),
        (SYMBOL + "_ZNK3c106SymInt6sym_neERKS0_", "abi-undefined-symbol"),
        (SYMBOL + "cuGreenCtxStreamCreate", "driver-symbol-missing"),
        ("/venv/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommResume",
         "nccl-library-mismatch"),
        (f"libcuda.so.1: {GONE}", "driver-not-visible"),
        (f"libnvrtc.so.12: {GONE}", "shared-lib-missing-wrong-major"),
        (f"libnuma.so.1: {GONE}", "shared-lib-not-on-path"),
        ("/lib/libm.so.6: version `GLIBC_2.38' not found (required by x.so)", "glibc-too-old"),
        ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "glibcxx-too-old"),
    ],
)  # fmt: skip
def test_the_line_after_the_details_decides(error: str, mode: str) -> None:
    line = deciding_line(COMMON_OPS.format(blank=" ", error=error), 0)
    assert line == f"ImportError: {error}"
    assert cause_of(line, {}, "13.0").mode == mode


def test_a_library_that_lies_in_the_environment_is_a_matter_of_the_path() -> None:
    lying = {"libnvrtc.so": ("/venv/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",)}
    cause = cause_of(f"ImportError: libnvrtc.so.12: {GONE}", lying, "12.8")
    assert cause.mode == "shared-lib-not-on-path"
    assert "/venv/nvidia/cuda_nvrtc/lib on LD_LIBRARY_PATH" in cause.fix


def test_only_another_version_of_a_library_is_no_cure() -> None:
    lying = {"libnvrtc.so": ("/venv/nvidia/cu13/lib/libnvrtc.so.13",)}
    cause = cause_of(f"ImportError: libnvrtc.so.12: {GONE}", lying, None)
    assert cause.mode == "shared-lib-missing-wrong-major"


def test_flashinfer_s_parts_of_different_versions() -> None:
    line = deciding_line(
        "RuntimeError: flashinfer-cubin version (0.6.13) does not match flashinfer version "
        "(0.6.14). Please install the same version of both packages.\nKeyError: 'x'",
        0,
    )
    assert line.startswith("RuntimeError: flashinfer-cubin version (0.6.13)")
    assert cause_of(line, {}, None).mode == "flashinfer-version-mismatch"


@pytest.mark.parametrize(
    ("told", "code", "stderr", "line"),
    [
        ("ValueError: no", 0, "", "ValueError: no"),
        ("ImportError: \nsomething else\nKeyError: 'deeper'", 0, "", "KeyError: 'deeper'"),
        ("", -11, "Fatal Python error: Segmentation fault\n",
         "died of SIGSEGV: Fatal Python error: Segmentation fault"),
        ("", -50, "", "died of signal 50"),
        ("", None, "", "did not finish in time"),
        ("", 1, "Traceback\n  File x\nRuntimeError: two\n\n", "RuntimeError: two"),
        ("", 71, "", ""),
        ("SystemExit: 3", 0, "", "SystemExit: 3"),
    ],
)  # fmt: skip
def test_other_ends(told: str, code: int | None, stderr: str, line: str) -> None:
    assert deciding_line(told, code, stderr) == line


def test_a_crash_and_an_unknown_error_foresee_no_mode() -> None:
    assert cause_of("died of SIGSEGV", {}, None).mode is None
    assert cause_of("ValueError: no", {}, None).mode is None
    assert cause_of("did not finish in time", {}, None).mode == "startup-timeout-slow-import"
