"""The sweep file: what to vary, how to load it, what counts as best.

This one model is the flow's parameter, the YAML file and the form in the Prefect UI. Its own
checks are pure; it knows nothing of a host or of the installed SGLang.
"""

from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from settings.axes import (
    Scalar,
    axis_name,
    conflicts,
    name_fault,
    normal,
    several_hosts_fault,
    value_fault,
    values_faults,
)
from settings.metric_names import LARGEST
from settings.nearest import suggest
from settings.objective import Constraint, Objective
from settings.quantities import Duration
from settings.strict import Strict
from settings.variables import Env
from settings.workload import Load, Slo, Workload

ArgValue = Scalar | list[bool | int | float | str]


def _underscored(value: object) -> object:
    """Accept `--tp-size`, `tp-size` and `tp_size` alike."""
    if not isinstance(value, dict):
        return value
    kept = {str(key).lstrip("-").replace("-", "_"): item for key, item in value.items()}
    if len(kept) < len(value):
        raise ValueError("a flag stands here twice: --tp-size, tp-size and tp_size are the same")
    return kept


Args = Annotated[dict[str, ArgValue], BeforeValidator(_underscored)]


class Server(Strict):
    """What every trial's server has in common."""

    model_path: str = Field(min_length=1)
    """Folder on the host, or a hub name."""

    args: Args = Field(default_factory=dict)
    """Launch flags, underscored: {"tp": 8, "trust_remote_code": true}; false leaves a flag out."""

    env: Env = Field(default_factory=dict)
    """Environment variables of the server: {"NCCL_PROTO": "LL"}."""

    @field_validator("args")
    @classmethod
    def _one_host(cls, args: dict[str, ArgValue]) -> dict[str, ArgValue]:
        faults = [(name, several_hosts_fault(name, value)) for name, value in args.items()]
        if lines := [f".{name}: {fault}" for name, fault in faults if fault]:
            raise ValueError("\n".join(lines))
        return args


class Speculative(Strict):
    """How `speculative_steps` above 0 is spelt out in flags."""

    algorithm: str = "EAGLE3"
    """What SGLang calls it: EAGLE, EAGLE3, STANDALONE, NGRAM."""

    draft_model_path: str | None = None
    """Folder on the host, or a hub name; absent where the algorithm needs no draft model."""

    eagle_topk: int = Field(default=1, ge=1)
    """Candidates a step; 1 drafts a chain."""


_NEEDS_DRAFT = ("EAGLE3", "STANDALONE")
"""Algorithms whose draft is always a model of its own; others may use layers of the target."""


class Search(Strict):
    """How the trials are chosen and how often each is measured."""

    strategy: Literal["grid"] = "grid"
    """`grid`: every combination that isn't excluded."""

    repeats: int = Field(default=1, ge=1, le=50)
    """Launches of each configuration, interleaved over all of them."""

    budget: Duration | None = None
    """No new launch starts after this long; what is measured by then is compared."""


class Retry(Strict):
    """How far a failed launch is helped."""

    max_attempts: int = Field(default=3, ge=1, le=10)
    """Launches of one trial in one repeat, the first included."""


class Canary(Strict):
    """What a server must answer before it is measured."""

    enabled: bool = True
    """Ask at all."""

    prompts: tuple[str, ...] = (
        "The capital of France is",
        "Count from one to ten:",
        "Water boils when",
    )
    """What every server is asked, one after the other, greedily."""

    max_tokens: int = Field(default=24, ge=4, le=512)
    """Length of each answer."""

    agreement: float = Field(default=0.5, ge=0, le=1)
    """Least share of the answers' tokens that must agree with the baseline's answers."""


class Timeouts(Strict):
    """When patience ends."""

    ready: Duration = 1800.0
    """From the launch to ready."""

    stall: Duration = 300.0
    """Without a sign of life (log line, CPU time) during a launch."""

    stop_grace: Duration = 30.0
    """Between SIGTERM and SIGKILL."""


class Sweep(Strict):
    """A set of trials with a baseline and an objective."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")
    """Names the sweep in the store, the report and the UI."""

    host: str = "local"
    """A host of the settings; `local` always exists."""

    server: Server
    """What every trial's server has in common."""

    axes: dict[str, list[Scalar]] = Field(default_factory=dict)
    """What varies: cuda_graph_max_bs, nccl_channels, speculative_steps, stack, args.*, env.*, each
    with its values: {"cuda_graph_max_bs": [128, 256]}."""

    speculative: Speculative = Field(default_factory=Speculative)
    """How speculative_steps above 0 is spelt out in flags."""

    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    """Combinations not to try: {"cuda_graph_max_bs": 256, "speculative_steps": 5}."""

    workloads: list[Workload] = Field(min_length=1)
    """The loads under which every configuration is measured."""

    load: Load = Field(default_factory=Load)
    """Where the load runs: on the worker, or on the host itself."""

    objective: Objective = Field(default_factory=Objective)
    """What makes one configuration better than another."""

    constraints: list[Constraint] = Field(default_factory=list)
    """Bounds that the best configuration must keep."""

    baseline: dict[str, Scalar] = Field(default_factory=dict)
    """The configuration that others are compared with; an axis left out takes its first value."""

    search: Search = Field(default_factory=Search)
    """How the trials are chosen and how often each is measured."""

    retry: Retry = Field(default_factory=Retry)
    """How far a failed launch is helped."""

    canary: Canary = Field(default_factory=Canary)
    """What a server must answer before it is measured."""

    timeouts: Timeouts = Field(default_factory=Timeouts)
    """When patience ends."""

    persist: Literal["process", "sitecustomize"] = "process"
    """Who gets server.env: the server's process, or, as a marked block in the sitecustomize of the
    stacks, every process of their interpreters, until `validate HOST --unpersist`."""

    @field_validator("axes", "baseline", mode="before")
    @classmethod
    def _axis_names(cls, value: object) -> object:
        return _named(value, "") if isinstance(value, dict) else value

    @field_validator("exclude", mode="before")
    @classmethod
    def _rule_names(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [
            _named(rule, f".{number}") if isinstance(rule, dict) else rule
            for number, rule in enumerate(value)
        ]

    @field_validator("axes")
    @classmethod
    def _axis_values(cls, axes: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        kept = {name: [normal(name, value) for value in axes[name]] for name in axes}
        faults = [f".{name}: {f}" for name in kept for f in values_faults(name, kept[name])]
        faults += [f".{other}: {name} sets that too" for name, other in conflicts(kept)]
        if faults:
            raise ValueError("\n".join(faults))
        return kept

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        faults = [
            *self._axis_faults(),
            *self._draft_faults(),
            *self._workload_faults(),
            *self._persist_faults(),
        ]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _axis_faults(self) -> list[str]:
        faults = [
            f"exclude.{number}: names no axis, and would exclude everything"
            for number, rule in enumerate(self.exclude)
            if not rule
        ]
        faults += self._choice_faults("baseline", self.baseline)
        for number, rule in enumerate(self.exclude):
            faults += self._choice_faults(f"exclude.{number}", rule)
        return faults

    def _persist_faults(self) -> list[str]:
        """What an axis unsets, the stack's sitecustomize would set again: another trial."""
        if self.persist == "process":
            return []
        unset = [name for name in self.server.env if None in self.axes.get(f"env.{name}", [])]
        way_out = "take it out of server.env, or leave persist out"
        return [
            f"axes.env.{name}: null can't unset what persist writes into the stack; {way_out}"
            for name in unset
        ]

    def _draft_faults(self) -> list[str]:
        """Without a draft model each of these launches would fail, minutes later."""
        steps = [*self.axes.get("speculative_steps", []), self.baseline.get("speculative_steps")]
        how = self.speculative
        if not any(steps) or how.draft_model_path or how.algorithm not in _NEEDS_DRAFT:
            return []
        return [f"speculative.draft_model_path: missing; {how.algorithm} needs a draft model"]

    def _choice_faults(self, place: str, choice: dict[str, Scalar]) -> list[str]:
        faults = []
        for name, value in choice.items():
            if name not in self.axes:
                fault = f"not an axis of this sweep{suggest(name, self.axes)}"
            elif place != "baseline" and normal(name, value) not in self.axes[name]:
                fault = f"{value!r} is not a value of that axis; it has {self.axes[name]}"
            else:
                fault = value_fault(name, value)
            if fault:
                faults.append(f"{place}.{name}: {fault}")
        return faults

    def _workload_faults(self) -> list[str]:
        names = [workload.name for workload in self.workloads]
        faults = [
            f"workloads: the name {name!r} is used twice"
            for name in sorted({n for n in names if names.count(n) > 1})
        ]
        faults += self._level_faults("objective", self.objective)
        for number, constraint in enumerate(self.constraints):
            faults += self._level_faults(f"constraints.{number}", constraint)
        return faults

    def _level_faults(self, place: str, wanted: Objective | Constraint) -> list[str]:
        names = [workload.name for workload in self.workloads]
        if wanted.workload is not None and wanted.workload not in names:
            return [
                f"{place}.workload: {wanted.workload!r} is not a workload of this sweep"
                f"{suggest(wanted.workload, names)}"
            ]
        if wanted.workload is None and len(set(names)) > 1 and place == "objective":
            return [f"{place}.workload: say which of {', '.join(names)} counts"]
        among = [w for w in self.workloads if wanted.workload in (None, w.name)]
        faults = [
            f"{place}.metric: {wanted.metric} needs the workload {workload.name!r} to have an slo"
            for workload in among
            if wanted.metric == "request_goodput" and workload.slo == Slo()
        ]
        faults += [
            f"{place}.workload: {workload.name!r} is a cross-check by {workload.engine}, which "
            f"doesn't tell its own delay: it can't decide; name a workload of the native engine"
            for workload in among
            if workload.engine != "native" and (wanted.workload or len(among) == 1)
        ]
        faults += [
            f"{place}.metric: {wanted.metric} needs the workload {workload.name!r} to look for the "
            f"largest {kind}"
            for kind, metric in LARGEST.items()
            if wanted.metric == metric
            for workload in among
            if workload.largest is None or workload.largest.of != kind
        ]
        for key, asked in (
            ("concurrency", wanted.concurrency),
            ("request_rate", wanted.request_rate),
        ):
            levels = [level for workload in among for level in getattr(workload, key)]
            if asked is not None and asked not in levels:
                faults.append(
                    f"{place}.{key}: {asked} is not a level of that workload; "
                    f"it has {levels or 'none'}"
                )
        return faults


def _named(choice: dict[object, object], place: str) -> dict[str, object]:
    """Axes by the names under which they are kept. Raises `ValueError` with a line per fault."""
    kept = {axis_name(name): value for name, value in choice.items()}
    faults = [f"{place}.{name}: {fault}" for name in kept if (fault := name_fault(name))]
    if len(kept) < len(choice):
        faults.append(f"{place}: an axis stands here twice: args.tp-size and args.tp_size are one")
    if faults:
        raise ValueError("\n".join(faults))
    return kept
