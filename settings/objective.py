"""What makes one configuration better than another, and what none may break."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from settings.metric_names import METRIC_NAMES
from settings.nearest import suggest
from settings.strict import Strict


def _known_metric(value: str) -> str:
    if value not in METRIC_NAMES:
        raise ValueError(f"no such metric{suggest(value, METRIC_NAMES)}")
    return value


Metric = Annotated[str, AfterValidator(_known_metric)]


class Objective(Strict):
    """What makes one configuration better than another."""

    metric: Metric = "output_throughput"
    """A metric by the name that sglang.bench_serving gives it, such as p99_ttft_ms."""

    workload: str | None = None
    """The workload that counts; may be left out where there is only one."""

    concurrency: int | None = None
    """The level that counts, for a workload with levels of concurrency."""

    request_rate: float | None = None
    """The level that counts, for a workload with levels of request rate."""

    goal: Literal["maximize", "minimize"] = "maximize"
    """Whether more is better; where a latency is the metric and nothing is said, less is."""

    @model_validator(mode="before")
    @classmethod
    def _less_latency_is_better(cls, value: object) -> object:
        if isinstance(value, dict) and str(value.get("metric")).endswith("_ms"):
            return {"goal": "minimize", **value}
        return value

    @model_validator(mode="after")
    def _sensible_goal(self) -> Self:
        if self.goal == "maximize" and self.metric.endswith("_ms"):
            raise ValueError(f".goal: maximizing {self.metric} finds the slowest; say minimize")
        return self


class Constraint(Strict):
    """A bound that the best configuration must keep, at the objective's level unless named."""

    metric: Metric
    """A metric by the name that sglang.bench_serving gives it, such as p99_ttft_ms."""

    max: float | None = None
    """The most that is allowed."""

    min: float | None = None
    """The least that is allowed."""

    workload: str | None = None
    """Where it must hold; the objective's workload when absent."""

    concurrency: int | None = None
    """At which level of concurrency."""

    request_rate: float | None = None
    """At which request rate."""

    @model_validator(mode="after")
    def _some_bound(self) -> Self:
        if self.max is None and self.min is None:
            raise ValueError("give max or min")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(f"nothing is at least {self.min:g} and at most {self.max:g}")
        return self
