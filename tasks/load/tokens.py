"""From events to tokens, per backend: when had how many tokens been generated.

`sglang` says so itself: `meta_info.completion_tokens` is the count so far in every event, whether
the text is cumulative or incremental, and exact when an event carries several tokens.

OpenAI's endpoints say so only where the server puts `usage` into every chunk. Where it doesn't, a
chunk with text counts as one token (on /v1/completions an empty text as well: SGLang sends one
where a token ends within a character), and when the last chunk's `usage` tells the true total, the
tokens are spread evenly over those chunks: chunk i of k has seen `floor(i * total / k)` of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from tasks.load.captured import Numbers
from tasks.load.target import Backend

TimedEvents = Iterable[tuple[bytes, int]]

DONE = b"[DONE]"

_COUNT = {"key": '"completion_tokens":', "sign": '"finish_reason":null'}
PLAIN: Mapping[Backend, Mapping[str, object]] = {
    "sglang": {**_COUNT, "silent": ['"text":""'], "uncounted": False},
    "openai": {**_COUNT, "silent": ['"text":""'], "uncounted": True},
    "openai-chat": {
        **_COUNT,
        "silent": ['"content":""', '"content":null', '"delta":{}', '"tool_calls":['],
        "uncounted": True,
    },
}
"""What of each backend's events is the same over and over, but for the count of tokens.

The keys can't occur within a text, where quotes are escaped. See `tasks.load.capture.plain`.
"""


class NotAnEvent(ValueError):
    """An event isn't what the backend sends; says what it is."""


@dataclass(slots=True)
class Trace:
    """What a stream's events say. `error` is the server's, told within the stream."""

    arrivals: list[int] | array[int] = field(default_factory=list)
    counts: list[int] | array[int] = field(default_factory=list)
    first_text_ns: int | None = None
    done_ns: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    verify_steps: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    fault: str | None = None

    @property
    def total(self) -> int:
        """Tokens so far."""
        return self.counts[-1] if self.counts else 0

    def add(self, count: object, at: int) -> None:
        """Note that by `at` there were `count` tokens; an event without a new one is no row."""
        if isinstance(count, int) and count > self.total:
            self.arrivals.append(at)
            self.counts.append(count)

    def merge(self, times: Numbers, counts: Numbers) -> None:
        """Put the events that were kept as counts in their places; the count 0 is one more."""
        if not counts[0]:
            self.arrivals = sorted([*self.arrivals, *times.tolist()])
            self.counts = spread(self.completion_tokens or len(self.arrivals), len(self.arrivals))
            return
        before = bisect_right(self.arrivals, times[0])
        merged_times = _inserted(self.arrivals, before, times)
        merged = _inserted(self.counts, before, counts)
        if _grows(merged, at_least=1) and _grows(merged_times, at_least=0):
            self.arrivals, self.counts = merged_times, merged
        else:
            self.arrivals, self.counts = [], []
            for at, count in sorted(zip(merged_times, merged, strict=True)):
                self.add(count, at)
        self.completion_tokens = max(self.completion_tokens or 0, self.total)

    def note_text(self, text: object, at: int) -> None:
        """Note the first text that isn't empty."""
        if text and self.first_text_ns is None:
            self.first_text_ns = at


def _inserted(into: Sequence[int], at: int, numbers: Numbers) -> array[int]:
    whole = array("q", into[:at])
    whole.frombytes(numbers.tobytes())
    whole.extend(into[at:])
    return whole


def _grows(numbers: array[int], at_least: int) -> bool:
    """Whether each number is so much more than the one before."""
    column = np.frombuffer(numbers, np.int64)
    return bool((column[1:] - column[:-1] >= at_least).all())


def trace_tokens(backend: Backend, events: TimedEvents) -> Trace:
    """Read the events of one stream, up to the first that can't be understood."""
    trace = Trace()
    try:
        if backend == "sglang":
            _read_sglang(events, trace)
        else:
            _read_openai(events, trace, chat=backend == "openai-chat")
    except NotAnEvent as fault:
        trace.fault = str(fault)
    except (AttributeError, TypeError) as fault:  # an object where a text is, or the like
        trace.fault = f"not an event of {backend}: {fault}"
    return trace


def message_of(answer: bytes) -> str:
    """The server's own words in an error's body, at most 300 characters."""
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        found = answer.decode("utf-8", "replace")
    while isinstance(found, dict):
        named = [found[key] for key in ("error", "message", "detail") if found.get(key)]
        if not named:
            break
        found = named[0]
    text = found if isinstance(found, str) else orjson.dumps(found).decode()
    return " ".join(text.split())[:300]


def _read_sglang(events: TimedEvents, trace: Trace) -> None:
    for data, at in events:
        if data == DONE:
            trace.done_ns = at
            continue
        event = _load(data, trace)
        meta = event.get("meta_info") or {}
        trace.note_text(event.get("text"), at)
        trace.add(meta.get("completion_tokens", trace.total + 1), at)
        note_meta(meta, trace)


def note_meta(meta: dict[str, Any], trace: Trace) -> None:
    """Keep what /generate says of the whole request in each event, the last one's counts."""
    trace.prompt_tokens = meta.get("prompt_tokens")
    trace.completion_tokens = meta.get("completion_tokens")
    trace.cached_tokens = meta.get("cached_tokens")
    trace.verify_steps = meta.get("spec_verify_ct") or None
    _note_finish(meta.get("finish_reason"), trace)


def _note_finish(reason: object, trace: Trace) -> None:
    """Keep why it ended; `stop: NaN happened` where a stop was matched, an abort is an error."""
    if isinstance(reason, dict):
        kind, matched = str(reason.get("type")), reason.get("matched")
        if kind == "abort":
            trace.error = str(reason.get("message") or "aborted by the server")
        trace.finish_reason = kind if matched is None else f"{kind}: {matched}"
    elif reason is not None:
        trace.finish_reason = str(reason)


def _read_openai(events: TimedEvents, trace: Trace, *, chat: bool) -> None:
    counted = False
    for data, at in events:
        if data == DONE:
            trace.done_ns = at
            continue
        event = _load(data, trace)
        usage = event.get("usage") or {}
        choice = next(iter(event.get("choices") or ()), None)
        if usage:
            _read_usage(usage, trace)
        if choice is None:
            continue
        text = _delta(choice) if chat else choice.get("text")
        trace.note_text(text, at)
        _note_finish(choice.get("finish_reason"), trace)
        counted = counted or bool(usage)
        if counted:
            trace.add(usage.get("completion_tokens", trace.total), at)
        elif text or not chat:
            trace.add(trace.total + 1, at)
    if not counted and trace.completion_tokens and trace.counts:
        trace.counts = spread(trace.completion_tokens, len(trace.counts))


def _delta(choice: dict[str, Any]) -> object:
    delta = choice.get("delta") or {}
    return delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")


def _read_usage(usage: dict[str, Any], trace: Trace) -> None:
    trace.prompt_tokens = usage.get("prompt_tokens")
    trace.completion_tokens = usage.get("completion_tokens")
    trace.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")


def spread(total: int, chunks: int) -> list[int]:
    """Spread a total evenly over chunks: the counts after each one."""
    return [max(1, number * total // chunks) for number in range(1, chunks + 1)]


def _load(data: bytes, trace: Trace) -> dict[str, Any]:
    """Parse one event; an error told within the stream is kept, and counts as no event."""
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotAnEvent(f"not JSON: {data[:80]!r}") from error
    if not isinstance(event, dict):
        raise NotAnEvent(f"not an object: {data[:80]!r}")
    if event.get("error"):
        trace.error = message_of(data)
        raise NotAnEvent(trace.error)
    return event
