"""How a server is loaded, and where from."""

import math
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from settings.quantities import Duration
from settings.strict import Strict

_LEAST_SHARE = 0.8
"""A closed loop that leaves more of its slots empty measures another concurrency."""


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) or value is None else [value]


Levels = BeforeValidator(_as_list)
ArgJson = bool | int | float | str | list[bool | int | float | str] | None


class Arrivals(Strict):
    """When the requests of an open loop come; `request_rate` is their mean rate."""

    kind: Literal["poisson", "constant", "gamma", "ramp", "trace"] = "poisson"
    """`poisson`: at random. `constant`: evenly. `gamma`: as bursty as `burstiness` says. `ramp`:
    ever faster, from `start` to the level's rate. `trace`: in the pattern of a recorded load."""

    burstiness: float = Field(default=1.0, gt=0)
    """Shape of the gamma distribution: below 1 burstier than Poisson, above 1 more even."""

    start: float = Field(default=1.0, gt=0)
    """Requests per second at the beginning of a ramp."""

    file: str | None = Field(default=None, min_length=1)
    """Time stamps, a line each: a number, or a JSON object with `timestamp`. Only their pattern
    counts: they are stretched to the level's rate."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        used = {"gamma": "burstiness", "ramp": "start", "trace": "file"}.get(self.kind)
        for name in ("burstiness", "start", "file"):
            if name != used and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f".{name}: means nothing for {self.kind} arrivals")
        if self.kind == "trace" and self.file is None:
            raise ValueError(".file: missing; a trace needs the file with its time stamps")
        return self


def _as_kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


class Slo(Strict):
    """What a request must keep to count for the goodput, in ms; what isn't named is free."""

    ttft_ms: float | None = Field(default=None, gt=0)
    """Longest time to the first text."""

    tpot_ms: float | None = Field(default=None, gt=0)
    """Longest mean time per output token after the first."""

    e2e_ms: float | None = Field(default=None, gt=0)
    """Longest time to the end."""


class Precision(Strict):
    """When a level has been measured long enough: `requests` is then the most it may take."""

    within: float | None = Field(default=None, gt=0, lt=1)
    """Half of the 95 % confidence interval, as a share of the metric's mean: 0.01 is 1 %. Without
    it all of the requests are sent."""

    metric: Literal[
        "output_throughput",
        "request_throughput",
        "mean_ttft_ms",
        "mean_tpot_ms",
        "mean_e2e_latency_ms",
    ] = "output_throughput"
    """What must be known so well; the sweep's objective, as a rule."""

    min_requests: int = Field(default=32, ge=1)
    """Requests that must have finished before."""

    min_duration: Duration = 10.0
    """Seconds that a level takes at the least."""


def _as_within(value: object) -> object:
    return {"within": value} if isinstance(value, int | float | str) else value


class Largest(Strict):
    """Which level to look for: the largest that keeps the workload's `slo`."""

    of: Literal["request_rate", "concurrency"] = "request_rate"
    """What is raised until the SLO breaks."""

    low: float = Field(gt=0)
    """Where the search begins; a server that doesn't keep the SLO there has no such level."""

    high: float = Field(gt=0)
    """Where it ends; a server that keeps the SLO even there is told to have at least this."""

    attainment: float = Field(default=0.99, gt=0, le=1)
    """Least share of the measured requests that must keep the SLO, failed ones counting as not."""

    levels: int = Field(default=7, ge=2, le=16)
    """Most runs of one search: both ends, then halves of what is left, by ratio."""

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f".high: {self.high:g} is not above low, {self.low:g}")
        if self.of == "concurrency" and (self.low % 1 or self.high % 1):
            raise ValueError(".low, .high: a concurrency is a whole number")
        return self


class Workload(Strict):
    """How a server is loaded: by levels of `concurrency` (closed loop) or of `request_rate` (open
    loop), or by the `largest` of either that keeps the SLO."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")
    """Names the workload in results and in the objective."""

    dataset: Literal["random", "text", "shared-prefix", "file", "conversations"] = "random"
    """`random`: random token ids. `text`: real English, for what acceptance depends on.
    `shared-prefix`: questions behind a few long prefixes. `file`: prompts of your own.
    `conversations`: turns in order, each behind the earlier ones and their answers."""

    file: str | None = Field(default=None, min_length=1)
    """Prompts for the dataset `file`, and for `conversations`: ShareGPT's JSON, or JSON lines with
    `prompt`, `messages` or `conversations`, and perhaps `output_len` for that line."""

    turns: int = Field(default=4, ge=1)
    """Most turns of one of the `conversations`; each turn is one of the `requests`."""

    prefix_groups: int = Field(default=8, ge=1)
    """How many different prefixes `shared-prefix` has."""

    prefix_len: int = Field(default=1024, ge=1)
    """Length of each prefix in tokens; `input_len` is that of the question behind it."""

    engine: Literal["native", "sglang", "sglang-rust"] = "native"
    """Who sends the load. `native`: our own client. `sglang`: `bench_serving` of the server's own
    software stack, on the host, for a cross-check. `sglang-rust`: its client in Rust, where that
    version has it."""

    input_len: int = Field(default=512, ge=1)
    """Prompt length in tokens."""

    output_len: int = Field(default=128, ge=1)
    """Tokens to generate, end-of-sequence ignored."""

    concurrency: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Levels] = ()
    """Requests in flight, one level each."""

    request_rate: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Levels] = ()
    """Requests per second on average, one level each."""

    largest: Largest | None = Field(default=None, title="Largest")
    """Look for the largest level that keeps the `slo`, in place of given levels."""

    arrivals: Annotated[Arrivals, BeforeValidator(_as_kind)] = Arrivals()
    """When the requests of an open loop come: poisson, constant, gamma, ramp, trace."""

    requests: int = Field(default=64, ge=1)
    """Measured requests per level."""

    precision: Annotated[Precision, BeforeValidator(_as_within)] = Precision()
    """Ends a level before its `requests` are through, once it is known well enough."""

    warmup_requests: int = Field(default=1, ge=0)
    """Requests before the measurement of each level, never counted."""

    request_timeout: Duration = 600.0
    """How long one request may take before it counts as timed out."""

    slo: Slo = Slo()
    """What a request must keep to count for `request_goodput`."""

    extra: dict[str, ArgJson] = Field(default_factory=dict)
    """Further fields of every request's body, such as {"top_k": 1}."""

    @property
    def most_levels(self) -> int:
        """How many runs one launch may have of it."""
        if self.largest is not None:
            return self.largest.levels
        return len(self.concurrency) + len(self.request_rate)

    @model_validator(mode="after")
    def _one_kind_of_level(self) -> Self:
        given = [bool(self.concurrency), bool(self.request_rate), self.largest is not None]
        if sum(given) != 1:
            raise ValueError("give either concurrency or request_rate, such as [1, 16], or largest")
        for name, levels in (
            ("concurrency", self.concurrency),
            ("request_rate", self.request_rate),
        ):
            if len(set(levels)) < len(levels):
                raise ValueError(f".{name}: {list(levels)} names a level twice")
        closed = self.concurrency
        if self.largest is not None:
            if self.slo == Slo():
                raise ValueError(".largest: needs an slo to keep, for instance {ttft_ms: 500}")
            if self.largest.of == "concurrency":
                closed = (int(self.largest.low), int(self.largest.high))
        if closed and self.arrivals != Arrivals():
            raise ValueError(".arrivals: means nothing without request_rate")
        for slots in closed:
            self._fill(slots)
        return self

    @model_validator(mode="after")
    def _of_the_dataset(self) -> Self:
        if self.dataset == "file" and self.file is None:
            raise ValueError(".file: missing; the dataset file needs one")
        if self.dataset not in ("file", "conversations") and self.file is not None:
            raise ValueError(f".file: means nothing for the dataset {self.dataset}; say file")
        if self.dataset == "conversations" and self._open_loop:
            raise ValueError(
                ".request_rate: conversations wait for their answers; give concurrency, "
                "the number of conversations at a time"
            )
        return self

    @model_validator(mode="after")
    def _of_the_engine(self) -> Self:
        if self.engine == "native":
            return self
        for name, usual in (
            ("dataset", "random"),
            ("arrivals", Arrivals()),
            ("precision", Precision()),
            ("slo", Slo()),
        ):
            if getattr(self, name) != usual:
                raise ValueError(
                    f".engine: {self.engine} draws random tokens at Poisson arrivals alone, "
                    f"and knows nothing of this {name}; leave one of them out"
                )
        return self

    @property
    def _open_loop(self) -> bool:
        wanted = self.largest
        return bool(self.request_rate) or (wanted is not None and wanted.of == "request_rate")

    def _fill(self, slots: int) -> None:
        """Raise `ValueError` where a closed loop would leave many of its slots empty."""
        each = self.turns if self.dataset == "conversations" else 1
        cards = math.ceil(self.requests / each)
        in_flight = cards / math.ceil(cards / slots)
        if in_flight < _LEAST_SHARE * slots:
            raise ValueError(
                f".requests: {self.requests} at concurrency {slots} keep only {in_flight:.1f} "
                f"in flight on average; give a multiple of {slots * each}, "
                f"or {5 * slots * each} and more"
            )


class Load(Strict):
    """Where the load runs."""

    model_config = ConfigDict(serialize_by_alias=True)

    place: Literal["auto", "worker", "host"] = Field(default="auto", alias="from")
    """`worker`: where this runs, over the network. `host`: on the host, beside the server.
    `auto`: on the host where the worker could only reach the server through an SSH tunnel."""
