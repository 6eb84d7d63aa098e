"""Judge NCCL's variables: NCCL takes no notice of a name that it doesn't know."""

from collections.abc import Iterator, Mapping
from importlib import resources

from settings.nearest import suggest
from settings.sweep import Sweep
from tasks.domain.facts import Finding, Severity, StackFacts
from tasks.domain.sglang import NCCL_CHANNELS

KNOWN = frozenset((resources.files("tasks.stack") / "nccl_variables.txt").read_text().split())
"""NCCL's variables up to 2.29, documented or not: where the library itself can't be asked, and for
the nearest name."""

_OURS = (
    "NCCL_VERSION",
    "NCCL_ROOT",
    "NCCL_HOME",
    "NCCL_INCLUDE_DIR",
    "NCCL_LIB_DIR",
    "NCCL_LIBRARY",
)
"""Not NCCL's own: what images and builds name their copy of it with."""

_VALUES: Mapping[str, tuple[str, ...]] = {
    "NCCL_PROTO": ("LL", "LL128", "Simple"),
    "NCCL_ALGO": ("Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"),
    "NCCL_DEBUG": ("VERSION", "WARN", "INFO", "TRACE", "ABORT"),
    "NCCL_LAUNCH_MODE": ("PARALLEL", "GROUP"),
}
_LEVELS = ("LOC", "NVL", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NODE")
_NTHREADS = range(64, 513, 32)


def check_nccl(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Names that NCCL doesn't know, values that it doesn't take, pairs that contradict."""
    env = {name: value for name, value in facts.env.items() if name.startswith("NCCL_")}
    for name in dict.fromkeys([*env, *nccl_axes(sweep)]):
        if _unknown(name, facts):
            fix, why = _near(name, facts), "its value has no effect"
            yield _finding(f"NCCL knows no variable {name}", fix, why)
    for name, value in env.items():
        fault = fault_of(name, value)
        if fault:
            yield _finding(f"{name} is {value!r}, {fault}", f"mend or unset {name}")
    yield from _contradictions(env, facts)


def nccl_axes(sweep: Sweep | None) -> list[str]:
    """NCCL's variables that the sweep varies."""
    axes = sweep.axes if sweep else {}
    return [axis.removeprefix("env.") for axis in axes if axis.startswith("env.NCCL_")]


def _unknown(name: str, facts: StackFacts) -> bool:
    """By the library that torch loads, whose text holds the name of every variable it reads."""
    if name in _OURS:
        return False
    return name not in KNOWN if facts.nccl_unknown is None else name in facts.nccl_unknown


def _near(name: str, facts: StackFacts) -> str:
    known = KNOWN.difference(facts.nccl_unknown or ())
    near = suggest(name, sorted(known)).removeprefix("; ")
    return near or "take it out"


def _finding(summary: str, fix: str, evidence: str = "", mode: str | None = None) -> Finding:
    return Finding(Severity.WARNING, summary, evidence, fix, mode)


def fault_of(name: str, value: str) -> str:
    """Why NCCL doesn't take a value, for the variables whose values are a short list."""
    if name in _VALUES and not any(sign in value for sign in "^:;"):
        known = {each.lower() for each in _VALUES[name]}
        bad = [each for each in value.split(",") if each.strip().lower() not in known]
        return f"where NCCL takes {', '.join(_VALUES[name])}" if bad else ""
    if name in ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL") and not value.isdigit():
        return "" if value.upper() in _LEVELS else f"where NCCL takes {', '.join(_LEVELS[:-1])}"
    if name == "NCCL_NTHREADS" and not (value.isdigit() and int(value) in _NTHREADS):
        return "where NCCL takes a multiple of 32 from 64 to 512"
    return ""


def _contradictions(env: Mapping[str, str], facts: StackFacts) -> Iterator[Finding]:
    least, most = (_whole(env.get(name)) for name in NCCL_CHANNELS)
    if least is not None and most is not None and least > most:
        yield _finding(
            f"NCCL_MIN_NCHANNELS {least} is above NCCL_MAX_NCHANNELS {most}", "swap them"
        )
    p2p_off, shm_off = (env.get(f"NCCL_{kind}_DISABLE") == "1" for kind in ("P2P", "SHM"))
    if p2p_off and "NCCL_P2P_LEVEL" in env:
        yield _finding(
            "NCCL_P2P_DISABLE=1 leaves NCCL_P2P_LEVEL without effect", "unset one of them"
        )
    if p2p_off and shm_off and len(facts.gpus) > 1:
        yield _finding(
            "NCCL may use neither peer access nor shared memory: ranks talk over the network",
            "unset NCCL_P2P_DISABLE or NCCL_SHM_DISABLE",
            "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1",
            "nccl-collective-timeout",
        )
    if env.get("NCCL_NVLS_ENABLE") == "0" and "nvls" in env.get("NCCL_ALGO", "").lower():
        yield _finding(
            "NCCL_ALGO asks for NVLS, which NCCL_NVLS_ENABLE=0 switches off", "unset one"
        )


def _whole(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None


def check_interfaces(facts: StackFacts, _: Sweep | None) -> Iterator[Finding]:
    """Ranks find each other over an interface; one that isn't there is waited for in vain."""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        asked, there = facts.env.get(name, ""), facts.system.interfaces
        if not asked or not there or asked.startswith("^"):
            continue
        exact = asked.startswith("=") or name.startswith("GLOO")
        wanted = [each for each in asked.lstrip("=").split(",") if each]
        if not any(t == w or (not exact and t.startswith(w)) for t in there for w in wanted):
            yield _finding(
                f"{name} names {asked}, which this host doesn't have",
                f"name one of {', '.join(there)}, or unset it",
                "",
                "hang-nccl-init" if name.startswith("NCCL") else "dist-timeout",
            )
