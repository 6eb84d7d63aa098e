"""The sweep file: what to vary, how to load it, what counts as best.

This one model is the flow's parameter, the YAML file and the form in the Prefect UI. Its own
checks are pure; it knows nothing of a host or of the installed SGLang.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from settings.metric_names import METRIC_NAMES
from settings.nearest import suggest
from settings.quantities import Duration
from settings.strict import Strict

Scalar = bool | int | float | str | None
ArgValue = Scalar | list[bool | int | float | str]

NAMED_AXES = ("cuda_graph_max_bs", "nccl_channels", "speculative_steps", "stack")
_FREE_AXIS = re.compile(r"(args|env)\.[A-Za-z_][A-Za-z0-9_.]*")
_LEAST = {"cuda_graph_max_bs": 1, "nccl_channels": 1, "speculative_steps": 0}


def _underscored(value: object) -> object:
    """Accept `--tp-size`, `tp-size` and `tp_size` alike."""
    if not isinstance(value, dict):
        return value
    return {str(key).lstrip("-").replace("-", "_"): item for key, item in value.items()}


def _as_text(value: object) -> object:
    """Environment variables are text: 16 and "16" mean the same."""
    if not isinstance(value, dict):
        return value
    return {str(key): str(item) for key, item in value.items() if item is not None}


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) or value is None else [value]


def _known_metric(value: str) -> str:
    if value not in METRIC_NAMES:
        raise ValueError(f"no such metric{suggest(value, METRIC_NAMES)}")
    return value


Args = Annotated[dict[str, ArgValue], BeforeValidator(_underscored)]
Env = Annotated[dict[str, str], BeforeValidator(_as_text)]
Metric = Annotated[str, AfterValidator(_known_metric)]
Levels = BeforeValidator(_as_list)


class Server(Strict):
    """What every trial's server has in common."""

    model_path: str = Field(min_length=1)
    """Folder on the host, or a hub name."""

    args: Args = Field(default_factory=dict)
    """Launch flags, underscored: {tp: 8, trust_remote_code: true}; false leaves a flag out."""

    env: Env = Field(default_factory=dict)
    """Environment variables of the server."""


class Speculative(Strict):
    """How `speculative_steps` above 0 is spelt out in flags."""

    algorithm: str = "EAGLE3"
    draft_model_path: str | None = None
    eagle_topk: int = Field(default=1, ge=1)


class Workload(Strict):
    """How a server is loaded; give `concurrency` (closed loop) or `request_rate` (open loop)."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")
    dataset: Literal["random", "text"] = "random"
    """`random`: random token ids. `text`: real English, for what acceptance depends on."""

    input_len: int = Field(default=512, ge=1)
    """Prompt length in tokens."""

    output_len: int = Field(default=128, ge=1)
    """Tokens to generate, end-of-sequence ignored."""

    concurrency: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Levels] = ()
    """Requests in flight, one level each."""

    request_rate: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Levels] = ()
    """Requests per second (Poisson), one level each."""

    requests: int = Field(default=64, ge=1)
    """Measured requests per level."""

    warmup_requests: int = Field(default=1, ge=0)
    """Requests before the measurement of each level, never counted."""

    request_timeout: Duration = 600.0
    """How long one request may take before it counts as timed out."""

    @model_validator(mode="after")
    def _one_kind_of_level(self) -> Self:
        if bool(self.concurrency) == bool(self.request_rate):
            raise ValueError("give either concurrency or request_rate, for instance [1, 16]")
        return self


class Objective(Strict):
    """What makes one configuration better than another."""

    metric: Metric = "output_throughput"
    workload: str | None = None
    """The workload that counts; may be left out where there is only one."""
    concurrency: int | None = None
    request_rate: float | None = None
    goal: Literal["maximize", "minimize"] = "maximize"


class Constraint(Strict):
    """A bound that the best configuration must keep, at the objective's level unless named."""

    metric: Metric
    max: float | None = None
    min: float | None = None
    workload: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None

    @model_validator(mode="after")
    def _some_bound(self) -> Self:
        if self.max is None and self.min is None:
            raise ValueError("give max or min")
        return self


class Search(Strict):
    """How the trials are chosen and how often each is measured."""

    strategy: Literal["grid"] = "grid"
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
    prompts: tuple[str, ...] = (
        "The capital of France is",
        "Count from one to ten:",
        "Water boils when",
    )
    max_tokens: int = Field(default=24, ge=4, le=512)
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

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")
    """Names the sweep in the store, the report and the UI."""

    host: str = "local"
    """A host of the settings; `local` always exists."""

    server: Server
    axes: dict[str, list[Scalar]] = Field(default_factory=dict)
    """What varies: cuda_graph_max_bs, nccl_channels, speculative_steps, stack, args.*, env.*."""

    speculative: Speculative = Field(default_factory=Speculative)
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    """Combinations not to try."""

    workloads: list[Workload] = Field(min_length=1)
    objective: Objective = Field(default_factory=Objective)
    constraints: list[Constraint] = Field(default_factory=list)
    baseline: dict[str, Scalar] = Field(default_factory=dict)
    """The configuration that others are compared with; an axis left out takes its first value."""

    search: Search = Field(default_factory=Search)
    retry: Retry = Field(default_factory=Retry)
    canary: Canary = Field(default_factory=Canary)
    timeouts: Timeouts = Field(default_factory=Timeouts)

    @field_validator("axes", "baseline", mode="before")
    @classmethod
    def _axis_names(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {_axis_name(str(name)): item for name, item in value.items()}

    @field_validator("axes")
    @classmethod
    def _axis_values(cls, axes: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        return {name: _checked_values(name, values) for name, values in axes.items()}

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        faults = [*self._axis_faults(), *self._workload_faults()]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _axis_faults(self) -> list[str]:
        named = [("baseline", self.baseline)]
        named += [(f"exclude.{number}", rule) for number, rule in enumerate(self.exclude)]
        faults = []
        for place, choice in named:
            for name, value in choice.items():
                if name not in self.axes:
                    faults.append(
                        f"{place}.{name}: not an axis of this sweep{suggest(name, self.axes)}"
                    )
                elif place != "baseline" and normal(name, value) not in self.axes[name]:
                    faults.append(
                        f"{place}.{name}: {value!r} is not a value of that axis; "
                        f"it has {self.axes[name]}"
                    )
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
        if wanted.workload is None and len(names) > 1 and place == "objective":
            return [f"{place}.workload: say which of {', '.join(names)} counts"]
        among = [w for w in self.workloads if wanted.workload in (None, w.name)]
        faults = []
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


def normal(axis: str, value: Scalar) -> Scalar:
    """The value of an axis in the form in which it is kept: variables are text."""
    if axis.startswith("env.") and value is not None:
        return str(value)
    return value


def _axis_name(name: str) -> str:
    prefix, _, rest = name.partition(".")
    if prefix == "args":
        name = f"args.{rest.lstrip('-').replace('-', '_')}"
    if name not in NAMED_AXES and not _FREE_AXIS.fullmatch(name):
        hint = suggest(name, NAMED_AXES)
        raise ValueError(
            f"{name}: no such axis{hint}; the axes are {', '.join(NAMED_AXES)}, "
            "args.<flag> and env.<VARIABLE>"
        )
    return name


def _checked_values(name: str, values: list[Scalar]) -> list[Scalar]:
    if not values:
        raise ValueError(f"{name}: an axis needs at least one value")
    kept = [normal(name, value) for value in values]
    least = _LEAST.get(name)
    for value in kept:
        if least is not None and (type(value) is not int or value < least):
            raise ValueError(f"{name}: {value!r} is not a whole number of at least {least}")
        if name == "stack" and not isinstance(value, str):
            raise ValueError(f"{name}: {value!r} is not the path of a Python interpreter")
    if len({(type(value), value) for value in kept}) < len(kept):
        raise ValueError(f"{name}: {values} names a value twice")
    return kept
