"""What of a stack is not as it was when a sweep measured it; pure, over two reports."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from tasks.domain.facts import GpuFacts, GpuState, ModelFacts, StackFacts, StackReport

ABSENT = "absent"

_VOLATILE = ("index", "pcie_gen", "sm_clock_mhz", "throttle")
"""Of a GPU's state: what differs from one moment to the next."""


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that was another: its name, what it was and what it is."""

    name: str
    before: str
    after: str


def changes_between(before: StackReport, after: StackReport) -> tuple[Change, ...]:
    """Name every fact that matters to a measurement and isn't the same, then the findings."""
    was, now = _flat(before.facts), _flat(after.facts)
    names = [name for name in dict.fromkeys([*was, *now]) if was.get(name) != now.get(name)]
    changed = [Change(name, was.get(name, ABSENT), now.get(name, ABSENT)) for name in names]
    return (*changed, *_flags(before.facts, after.facts), *_findings(before, after))


def _flat(facts: StackFacts) -> dict[str, str]:
    """The facts that may change a number, by a name that a person knows."""
    system = facts.system
    told: dict[str, object] = {
        "python": facts.python_version,
        "system": facts.platform,
        "glibc": system.glibc,
        "CUDA of the driver": system.driver_cuda,
        "CUDA_HOME": system.cuda_home,
    }
    told |= {p.name: p.version or "present" for p in facts.packages if p.imported}
    told |= {p.name: "can't be imported" for p in facts.packages if p.error is not None}
    told |= {n: v for n, v in facts.distributions.items() if n.replace("-", "_") not in told}
    told |= {f"torch's {name}": value for name, value in facts.torch.items()}
    told |= {f"{name} (release)": release for name, release in system.tools.items()}
    told |= {f"variable {name}": value for name, value in facts.env.items()}
    told |= {f"start-up file {name}": path for name, path in facts.startup_files.items()}
    told |= _gpus(facts.gpus, facts.gpu_states)
    told |= {f"link {pair}": link for pair, link in facts.links.items()}
    for model in facts.models:
        told |= _model(model)
    return {name: str(value) for name, value in told.items() if value not in (None, "", [])}


def _gpus(gpus: tuple[GpuFacts, ...], states: tuple[GpuState, ...]) -> Mapping[str, object]:
    told: dict[str, object] = {f"GPU {gpu.index}": f"{gpu.name} ({gpu.uuid})" for gpu in gpus}
    if gpus:
        told["driver"] = ", ".join(sorted({gpu.driver_version for gpu in gpus}))
    for state in states:
        kept = {name: value for name, value in asdict(state).items() if name not in _VOLATILE}
        told |= {f"GPU {state.index}'s {name}": value for name, value in kept.items()}
    return told


def _model(model: ModelFacts) -> Mapping[str, object]:
    """A model by what of it is cheap to compare; its weights are not read."""
    content = f"{model.shards} files, {model.bytes} bytes" if model.there else "not there"
    config = {f"{model.path} {name}": value for name, value in (model.config or {}).items()}
    return {model.path: content, **config}


def _flags(before: StackFacts, after: StackFacts) -> Iterator[Change]:
    """Launch options that came or went; nothing where either list could not be read."""
    if not before.flags or not after.flags:
        return
    for name in sorted(before.flags ^ after.flags):
        there = name in after.flags
        yield Change(f"flag --{name.replace('_', '-')}", *_whether(there))


def _whether(there: bool) -> tuple[str, str]:
    return (ABSENT, "present") if there else ("present", ABSENT)


def _findings(before: StackReport, after: StackReport) -> Iterator[Change]:
    """What was found then and isn't now, and the other way round; but for what is only told."""
    was = [f"{f.severity}: {f.summary}" for f in before.findings if f.severity != "info"]
    now = [f"{f.severity}: {f.summary}" for f in after.findings if f.severity != "info"]
    for finding in dict.fromkeys([*was, *now]):
        if (finding in was) != (finding in now):
            yield Change(finding, *_whether(finding in now))
