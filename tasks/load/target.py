"""What is loaded, and how much of it at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from settings.workload import Workload
from tasks.domain.errors import InputError

Backend = Literal["sglang", "openai", "openai-chat"]

PATHS: Mapping[Backend, str] = {
    "sglang": "/generate",
    "openai": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A server that runs already.

    `model` is the name that OpenAI's endpoints want. `vocab_size` bounds random token ids, None
    to find it out. `extra` is merged into the body of each request.
    """

    base_url: str
    backend: Backend = "sglang"
    model: str = "default"
    vocab_size: int | None = None
    api_key: str | None = field(default=None, repr=False)
    extra: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            _ = self.url.port
        except ValueError as error:
            raise InputError("base_url", [f"{self.base_url!r}: {error}"]) from error
        if self.url.scheme not in ("http", "https") or not self.url.hostname:
            fault = f"{self.base_url!r} is not of the form http://host:port or https://host"
            raise InputError("base_url", [fault])

    @property
    def url(self) -> SplitResult:
        """The base URL in its parts."""
        return urlsplit(self.base_url)

    @property
    def host(self) -> str:
        """Host name or address."""
        return self.url.hostname or ""

    @property
    def port(self) -> int:
        """TCP port; 80 or 443 where the URL names none."""
        return self.url.port or (443 if self.tls else 80)

    @property
    def tls(self) -> bool:
        """Whether to speak https; then the kernel's stamps are of no use."""
        return self.url.scheme == "https"

    @property
    def headers(self) -> dict[str, str]:
        """The headers that every request to this server bears."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Host": self.url.netloc.rpartition("@")[2], **key}

    def path(self, path: str) -> str:
        """The request target of an endpoint, with whatever path the base URL has."""
        return self.url.path.rstrip("/") + path


@dataclass(frozen=True, slots=True)
class Level:
    """How hard to load: a concurrency (closed loop) or a rate per second (open loop)."""

    concurrency: int | None = None
    request_rate: float | None = None

    def __str__(self) -> str:
        if self.concurrency is not None:
            return f"c{self.concurrency}"
        return f"{self.request_rate:g}/s"


def levels_of(workload: Workload) -> tuple[Level, ...]:
    """The levels of a workload, in the order in which they are written."""
    closed = tuple(Level(concurrency=number) for number in workload.concurrency)
    return closed + tuple(Level(request_rate=rate) for rate in workload.request_rate)
