"""The probe's answer read into facts: a captured one, and what an interpreter may say instead."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.stack.reading import pins_of, read_answer, startup_complaint

CAPTURED: Mapping[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "probe-cpu-0.5.9.json").read_text()
)


def answer(**changes: object) -> str:
    return "\nnoise of an import\n" + json.dumps({**CAPTURED, **changes}) + "\n"


def test_a_real_cpu_stack() -> None:
    facts = read_answer("~/venv/bin/python", answer(), "")
    assert (facts.interpreter, facts.python_version) == ("~/venv/bin/python", "3.11.7")
    torch, shim = facts.package("torch"), facts.package("sgl_kernel")
    assert torch is not None
    assert shim is not None
    assert (torch.version, torch.imported) == ("2.13.0+cpu", True)
    assert torch.import_s > 1
    assert (shim.version, shim.origin) == (None, "/shim/sgl_kernel/__init__.py")
    flashinfer = facts.package("flashinfer")
    assert flashinfer is not None
    assert (flashinfer.imported, flashinfer.error) == (False, None)
    assert facts.torch["cuda"] is None
    assert {"model_path", "model", "trust_remote_code"} <= facts.flags
    assert facts.flags_error == ""
    assert facts.pins["sgl-kernel"] == "0.3.21"
    assert "pip" not in facts.distributions
    assert (facts.system.driver_cuda, facts.system.driver_status) == (None, "")
    assert facts.error == facts.startup == ""


def test_the_driver_s_words() -> None:
    served = {"code": 0, "stderr": "", "value": {"cuda": 13000, "status": 0}}
    facts = read_answer("p", answer(driver=served), "")
    assert (facts.system.driver_cuda, facts.system.driver_status) == (13000, "ok")
    served = {"code": 0, "stderr": "", "value": {"cuda": 13000, "status": 802}}
    assert read_answer("p", answer(driver=served), "").system.driver_status == "802"
    hung = {"code": None, "stderr": ""}
    assert read_answer("p", answer(driver=hung), "").system.driver_status.startswith("did not")


def test_a_wheel_tells_the_version_of_what_can_not_be_imported() -> None:
    broken = {
        "code": 0,
        "seconds": 0.2,
        "stderr": "",
        "error": "ImportError: x.so: undefined symbol: y",
    }
    imports = {**CAPTURED["imports"], "sgl_kernel": broken}
    wheels = {**CAPTURED["wheels"], "sglang_kernel": "0.4.9"}
    package = read_answer("p", answer(imports=imports, wheels=wheels), "").package("sgl_kernel")
    assert package is not None
    assert (package.version, package.imported) == ("0.4.9", False)
    assert package.error == "ImportError: x.so: undefined symbol: y"


@pytest.mark.parametrize(
    ("launch_help", "error"),
    [
        ({"code": 1, "stderr": "Traceback\nImportError: no\n", "stdout": ""}, "ImportError: no"),
        ({"code": None, "stderr": "", "stdout": "options:"}, "did not finish in time"),
        ({"code": 0, "stderr": "", "stdout": "usage: x\n"}, "--help lists no options"),
    ],
)
def test_why_there_are_no_flags(launch_help: object, error: str) -> None:
    facts = read_answer("p", answer(help=launch_help), "")
    assert (facts.flags, facts.flags_error) == (frozenset(), error)


@pytest.mark.parametrize(
    ("stdout", "stderr", "error"),
    [
        ("", "python: can't open file\n", "python: can't open file"),
        ("", "", "no answer"),
        ("hello\n", "", "no answer"),
        ("[1, 2]\n", "", "no answer"),
        ('{"python": "3.11"}\n', "", "no answer"),
    ],
)
def test_who_does_not_answer_is_no_stack(stdout: str, stderr: str, error: str) -> None:
    assert read_answer("p", stdout, stderr).error == error


def test_what_python_says_of_a_sitecustomize_that_raises() -> None:
    said = (
        "Error in sitecustomize; set PYTHONVERBOSE for traceback:\n"
        "RuntimeError: NCCL is not what it was\n/venv/x.py:1: UserWarning: y\n"
    )
    assert startup_complaint(said) == (
        "Error in sitecustomize; set PYTHONVERBOSE for traceback: "
        "RuntimeError: NCCL is not what it was"
    )
    assert startup_complaint("UserWarning: y\n") == ""


def test_pins_are_exact_and_hold_everywhere() -> None:
    requires = [
        "torch==2.9.1",
        "flashinfer_python==0.6.3",
        "sgl-kernel (==0.3.21)",
        "nvidia-cutlass-dsl>=4.3.4",
        'triton==3.5.1; sys_platform == "linux"',
        "openai==2.6.1",
        "xgrammar[x]==0.1.27",
    ]
    assert pins_of(requires) == {
        "torch": "2.9.1",
        "flashinfer-python": "0.6.3",
        "sgl-kernel": "0.3.21",
        "xgrammar": "0.1.27",
    }
