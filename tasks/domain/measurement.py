"""What the load client hands on: a record a request, and a result a level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class RequestOutcome(StrEnum):
    """How a request ended; each one sent is in exactly one class."""

    FINISHED = "finished"
    REFUSED = "refused"
    HTTP_ERROR = "http_error"
    CUT = "cut"
    MALFORMED = "malformed"
    TIMEOUT = "timeout"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it was seen on the wire.

    All times are nanoseconds of CLOCK_MONOTONIC. `arrival_ns[i]` is when the chunk arrived after
    which `cumulative_tokens[i]` tokens had been generated; both have a row a chunk that carried
    tokens, and are arrays where there are many. `prompt_tokens`, `completion_tokens`,
    `cached_tokens` and `verify_steps` (the forward passes of speculative decoding) are the server's
    own counts, None where it gave none. `first_text_ns` is when the first text that isn't empty
    arrived. Without a schedule (closed loop) a request is intended when it is sent, so every
    latency counts from `intended_ns`.
    """

    index: int
    intended_ns: int
    sent_ns: int
    end_ns: int
    outcome: RequestOutcome
    arrival_ns: Sequence[int] = ()
    cumulative_tokens: Sequence[int] = ()
    first_byte_ns: int | None = None
    first_text_ns: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    verify_steps: int | None = None
    requested_tokens: int | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    error: str | None = None
    warmup: bool = False


class Validity(StrEnum):
    """Whether a run's numbers can be trusted."""

    VALID = "valid"
    SUSPECT = "suspect"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """A verdict with its reasons; no reason when valid.

    `disturbed` says that every reason is about the load client, which lacked a core for a while:
    the server has nothing to do with it, and another run may be clean.
    """

    validity: Validity
    reasons: tuple[str, ...] = ()
    disturbed: bool = False


SLO = "slo"
"""What the level is called that a search has found."""


class SearchRole(StrEnum):
    """Whether a level was asked for by the sweep file, or what it was to a search."""

    NONE = ""
    STEP = "step"
    FOUND = "found"


@dataclass(frozen=True, slots=True)
class LevelResult:
    """One workload at one level (a concurrency or a request rate), run once on one launch.

    `metrics` bears the names that `sglang.bench_serving` writes. Exactly one of `concurrency`
    and `request_rate` (per second) is the level that was asked for. A level that no sweep file
    names is one of a search for the largest that keeps the SLO: a `step` of it, or `found` by it.
    """

    workload: str
    concurrency: int | None
    request_rate: float | None
    repeat: int
    metrics: Mapping[str, float]
    verdict: RunVerdict
    records: tuple[RequestRecord, ...] = field(default=(), repr=False)
    client: Mapping[str, float | int | str] = field(default_factory=dict)
    search: SearchRole = SearchRole.NONE

    @property
    def level(self) -> str:
        """The level as a person reads it: `c16` or `4/s`; the one that a search found is `slo`.

        So it is the same cell in every trial and every night, wherever it was found.
        """
        if self.search is SearchRole.FOUND:
            return SLO
        return self.measured_level

    @property
    def measured_level(self) -> str:
        """The level that was asked of the server: `c16` or `4/s`."""
        if self.concurrency is not None:
            return f"c{self.concurrency}"
        return f"{self.request_rate:g}/s"
