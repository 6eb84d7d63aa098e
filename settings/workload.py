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


class Workload(Strict):
    """How a server is loaded; give `concurrency` (closed loop) or `request_rate` (open loop)."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")
    """Names the workload in results and in the objective."""

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
        for name, levels in (
            ("concurrency", self.concurrency),
            ("request_rate", self.request_rate),
        ):
            if len(set(levels)) < len(levels):
                raise ValueError(f".{name}: {list(levels)} names a level twice")
        for slots in self.concurrency:
            in_flight = self.requests / math.ceil(self.requests / slots)
            if in_flight < _LEAST_SHARE * slots:
                raise ValueError(
                    f".requests: {self.requests} at concurrency {slots} keep only {in_flight:.1f} "
                    f"in flight on average; give a multiple of {slots}, or {5 * slots} and more"
                )
        return self


class Load(Strict):
    """Where the load runs."""

    model_config = ConfigDict(serialize_by_alias=True)

    place: Literal["auto", "worker", "host"] = Field(default="auto", alias="from")
    """`worker`: where this runs, over the network. `host`: on the host, beside the server.
    `auto`: on the host where the worker could only reach the server through an SSH tunnel."""
