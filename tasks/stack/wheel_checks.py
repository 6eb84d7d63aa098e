"""Judge the versions of the wheels by what they ask of each other."""

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackFacts
from tasks.stack.versions import below, numbers

_KERNEL_WHEELS = ("sgl-kernel", "sglang-kernel")
_SERVING = ("flashinfer-python", "flashinfer-jit-cache", *_KERNEL_WHEELS)
_OLDER: dict[str, str] = {
    "flashinfer-python": "flashinfer-below-minimum",
    "transformers": "transformers-too-old",
    **dict.fromkeys(_KERNEL_WHEELS, "kernel-package-outdated"),
}
"""Wheel -> the mode that follows when it is older than SGLang asks for."""


def check_pins(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Wheels of another version than SGLang's asks for: legitimate at times, so never an error."""
    wheels = facts.distributions
    for name, wanted in facts.pins.items():
        there = wheels.get(name)
        if there is None or there.partition("+")[0] == wanted.partition("+")[0]:
            continue
        lower = below(there, wanted)
        yield Finding(
            Severity.WARNING if lower else Severity.INFO,
            f"{name} is {there}, SGLang {wheels.get('sglang')} asks for {wanted}",
            f"{name} {there}",
            f"install {name}=={wanted}",
            _mode_of(name, sweep) if lower else None,
        )
    yield from _flashinfer_parts(facts)


def _mode_of(name: str, sweep: Sweep | None) -> str | None:
    """Old kernels are missed first where a sweep speculates."""
    speculates = sweep is not None and any(sweep.axes.get("speculative_steps", []))
    if name in _KERNEL_WHEELS and speculates:
        return "spec-kernel-missing"
    return _OLDER.get(name)


def _flashinfer_parts(facts: StackFacts) -> Iterator[Finding]:
    """flashinfer refuses parts of another version; a bypass exists, so it's no error."""
    main = facts.distributions.get("flashinfer-python")
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        part = facts.distributions.get(name)
        if main is None or part is None or part.partition("+")[0] == main.partition("+")[0]:
            continue
        near = numbers(part)[:2] == numbers(main)[:2]
        bypass = "; FLASHINFER_DISABLE_VERSION_CHECK=1 passes over it" if near else ""
        yield Finding(
            Severity.WARNING,
            f"{name} is {part}, flashinfer-python {main}",
            "",
            f"install the same version of both{bypass}",
            "flashinfer-version-mismatch" if near else "flashinfer-version-mismatch-minor",
        )


def check_requirements(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """A wheel that asks for another torch: whoever installs it next gets that torch, too."""
    torch = facts.distributions.get("torch")
    for name, asked in facts.requirements.items():
        if name == "torch":
            yield from _of_torch(facts, asked)
            continue
        for requirement in _parsed(asked):
            if requirement.name == "torch" and torch and not _satisfies(torch, requirement):
                yield Finding(
                    Severity.WARNING if name in _SERVING else Severity.INFO,
                    f"{name} asks for torch{requirement.specifier}, and torch is {torch}",
                    f"{name} {facts.distributions.get(name, '')}: {requirement}",
                    f"install a {name} for this torch, and with --no-deps: pip would replace torch",
                    "abi-undefined-symbol" if name in _SERVING else None,
                )


def _of_torch(facts: StackFacts, asked: tuple[str, ...]) -> Iterator[Finding]:
    """CUDA's wheels that are older than the ones torch was built with."""
    modes = {"cudnn": "cudnn-version-incompatible", "nccl": "nccl-library-mismatch"}
    for requirement in _parsed(asked):
        kind = next((kind for kind in modes if requirement.name.startswith(f"nvidia-{kind}")), None)
        there = facts.distributions.get(requirement.name)
        wanted = next((s.version for s in requirement.specifier if s.operator == "=="), "")
        if kind and below(there, wanted):
            yield Finding(
                Severity.WARNING,
                f"{requirement.name} is {there}, torch was built with {wanted}",
                f"{requirement}",
                f"install {requirement.name}=={wanted} or newer",
                modes[kind],
            )


def _parsed(asked: tuple[str, ...]) -> Iterator[Requirement]:
    """The requirements that hold here; those of an extra don't, nor those that can't be read."""
    for line in asked:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or "extra" not in str(requirement.marker):
            yield requirement


def _satisfies(version: str, requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True
