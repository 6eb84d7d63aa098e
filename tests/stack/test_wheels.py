"""What wheels ask of each other."""

from dataclasses import replace

import pytest

from tasks.domain.facts import Finding, Severity
from tasks.stack.checks import check_stack
from tests.stack.factory import SOUND


def judged(torch: str, **requirements: tuple[str, ...]) -> list[Finding]:
    asked = {name.replace("_", "-"): lines for name, lines in requirements.items()}
    wheels = {**SOUND.distributions, "torch": torch}
    return list(check_stack(replace(SOUND, distributions=wheels, requirements=asked), None))


@pytest.mark.parametrize(
    ("asked", "good"),
    [
        ("torch", True),
        ("torch>=2.8", True),
        ("torch==2.9.1", True),
        ("torch (==2.9.*)", True),
        ("torch<2.9", False),
        ("torch==2.8.0", False),
        ('torch==2.8.0; extra == "dev"', True),
        ("torch @ nonsense ==", True),
    ],
)
def test_a_flashinfer_that_would_bring_another_torch(asked: str, good: bool) -> None:
    found = judged("2.9.1+cu130", flashinfer_python=("numpy", asked))
    assert [(f.severity, f.mode) for f in found] == (
        [] if good else [(Severity.WARNING, "abi-undefined-symbol")]
    )


def test_what_no_server_needs_is_only_told() -> None:
    (finding,) = judged("2.9.1+cu130", torchvision=("torch==2.0.1",))
    assert finding.severity is Severity.INFO
    assert finding.summary == "torchvision asks for torch==2.0.1, and torch is 2.9.1+cu130"


@pytest.mark.parametrize(
    ("version", "mode"),
    [("9.10.2.21", "cudnn-version-incompatible"), ("9.16.0.29", None), ("9.20.0.1", None)],
)
def test_the_cudnn_that_torch_was_built_with(version: str, mode: str | None) -> None:
    wheels = {**SOUND.distributions, "nvidia-cudnn-cu13": version, "torch": "2.9.1"}
    requirements = {"torch": ("nvidia-cudnn-cu13==9.16.0.29; platform_system == 'Linux'",)}
    facts = replace(SOUND, distributions=wheels, requirements=requirements)
    assert [f.mode for f in check_stack(facts, None)] == ([mode] if mode else [])
