"""What a generation looks like on the wire, for each of the three endpoints.

An event is joined from bytes that are known beforehand: per stream, what never changes; per
event, two slices of the answer and a number. The shapes are those recorded from SGLang 0.5.9.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simulator.engine import Request
from simulator.wire import LAST_CHUNK, chunk
from simulator.words import Answer

DONE = chunk(b"data: [DONE]\n\n")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants of one generation, whatever the endpoint."""

    prompt: tuple[int, ...]
    output_len: int
    stops_by_itself: bool
    stream: bool
    include_usage: bool = False
    logprobs: bool = False
    disjoint_ids: bool = False
    disjoint_text: bool = False
    sampled: bool = False


@dataclass(slots=True, eq=False)
class Job:
    """One generation under way: the engine's request, its text, and how it is written.

    `received_s` is wall-clock time; the engine's own times are on the monotonic clock, and
    `wall_offset_s` leads from there to the wall clock.
    """

    id: str
    asked: Asked
    request: Request
    answer: Answer
    format: "Format"
    received_s: float
    wall_offset_s: float

    def wall(self, engine_s: float) -> float:
        return engine_s + self.wall_offset_s

    @property
    def finish_kind(self) -> str:
        return "stop" if self.asked.stops_by_itself else "length"


class Format(Protocol):
    """How an endpoint writes a generation: event by event, or as one body."""

    def events(self, job: Job, count: int) -> bytes:
        """Return the HTTP chunks that carry the last `count` of the tokens produced so far."""
        ...

    def body(self, job: Job) -> bytes:
        """Return the whole response body of a finished generation."""
        ...


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(slots=True)
class Generate:
    """`/generate`: cumulative text and token ids, and a `meta_info` that grows at the end."""

    weight_version: str = "default"
    eos_id: int = 0
    draft_tokens: int = 0
    _meta: bytes = b""
    _opening: bytes = b""

    def events(self, job: Job, count: int) -> bytes:
        finished = job.request.done
        if finished or job.request.produced == count or job.asked.logprobs:
            # The slow way, twice in a stream's life: its first event and its last.
            event = chunk(b"data: " + self._object(job, count, finished) + b"\n\n")
            return event + DONE + LAST_CHUNK if finished else event
        produced = job.request.produced
        begin_text = produced - count if job.asked.disjoint_text else 0
        begin_ids = produced - count if job.asked.disjoint_ids else 0
        body = b"".join(
            (
                b'data: {"text":"',
                job.answer.text_to(produced, begin_text),
                b'","output_ids":[',
                job.answer.ids_to(produced, begin_ids),
                self._meta,
                b'"completion_tokens":%d,"cached_tokens":%d,"cached_tokens_details":null}}\n\n'
                % (produced, job.request.cached),
            )
        )
        return b"%x\r\n%b\r\n" % (len(body), body)

    def body(self, job: Job) -> bytes:
        return self._object(job, job.request.produced, True)

    def _object(self, job: Job, count: int, finished: bool) -> bytes:
        produced = job.request.produced
        begin_text = produced - count if job.asked.disjoint_text else 0
        begin_ids = produced - count if job.asked.disjoint_ids else 0
        text = job.answer.text_to(produced, begin_text)
        ids = job.answer.ids_to(produced, begin_ids)
        meta = self._meta_info(job, finished)
        if not self._meta:
            fixed = {k: v for k, v in meta.items() if k in _FIXED}
            self._meta = b'],"meta_info":' + _dump(fixed)[:-1] + b","
        return b'{"text":"%b","output_ids":[%b],"meta_info":%b}' % (text, ids, _dump(meta))

    def _meta_info(self, job: Job, finished: bool) -> dict[str, Any]:
        request = job.request
        meta: dict[str, Any] = {
            "id": job.id,
            "finish_reason": _finish_reason(job, self.eos_id) if finished else None,
            "prompt_tokens": len(request.prompt),
            "weight_version": self.weight_version,
            "total_retractions": 0,
            "queue_time": request.started_s - request.submitted_s,
            "prefill_launch_delay": 0.0004,
            "prefill_launch_latency": request.first_token_s - request.started_s,
            "prefill_finished_ts": job.wall(request.first_token_s),
            "completion_tokens": request.produced,
            "cached_tokens": request.cached,
            "cached_tokens_details": None,
        }
        if job.asked.logprobs:
            meta |= _logprobs(job)
        if finished:
            meta |= self._closing(job)
        elif request.produced == 1:
            meta["response_sent_to_client_ts"] = job.wall(request.first_token_s)
        return meta

    def _closing(self, job: Job) -> dict[str, Any]:
        request = job.request
        now_s = job.wall(request.finished_s)
        decode_s = max(1e-6, now_s - job.wall(request.first_token_s))
        closing: dict[str, Any] = {
            "e2e_latency": now_s - job.received_s,
            "request_received_ts": job.received_s,
            "request_sent_to_scheduler_ts": job.received_s,
            "response_sent_to_client_ts": job.wall(request.first_token_s),
            "decode_finished_ts": now_s,
            "inference_time": now_s - job.wall(request.started_s),
            "decode_throughput": (request.produced - 1) / decode_s,
        }
        if request.verify_ct:
            proposed = request.verify_ct * max(1, self.draft_tokens - 1)
            accepted = max(0, request.produced - 1 - request.verify_ct)
            closing |= {
                "spec_accept_rate": accepted / proposed,
                "spec_accept_length": request.produced / request.verify_ct,
                "spec_accept_token_num": accepted,
                "spec_draft_token_num": proposed,
                "spec_verify_ct": request.verify_ct,
            }
        return closing


_FIXED = [
    "id",
    "finish_reason",
    "prompt_tokens",
    "weight_version",
    "total_retractions",
    "queue_time",
    "prefill_launch_delay",
    "prefill_launch_latency",
    "prefill_finished_ts",
]


def _finish_reason(job: Job, eos_id: int) -> dict[str, Any]:
    if job.asked.stops_by_itself:
        return {"type": "stop", "matched": eos_id}
    return {"type": "length", "length": job.request.produced}


def _logprobs(job: Job) -> dict[str, Any]:
    """Return made-up but repeatable log probabilities of the tokens produced so far."""
    tokens: Sequence[int] = job.answer.tokens(job.request.produced)
    rows = [[-0.01 - (token % 97) / 100, token, None] for token in tokens]
    return {"input_token_logprobs": [], "output_token_logprobs": rows}


@dataclass(slots=True)
class Completion:
    """`/v1/completions`: the text of each event is what is new; the last one has the reason."""

    model: str
    eos_id: int = 0
    object: str = "text_completion"
    _head: bytes = b""

    def events(self, job: Job, count: int) -> bytes:
        request, finished = job.request, job.request.done
        text = job.answer.text_to(request.produced, request.produced - count)
        if not self._head:
            self._head = b"data: " + _head(job, self.object, self.model) + b'[{"index":0,"text":"'
        matched = _dump(self.eos_id if finished and job.asked.stops_by_itself else None)
        reason = b'"%b"' % job.finish_kind.encode() if finished else b"null"
        event = chunk(
            b'%b%b","logprobs":null,"finish_reason":%b,"matched_stop":%b}],"usage":null}\n\n'
            % (self._head, text, reason, matched)
        )
        return event + _ending(job, self.object, self.model, {}) if finished else event

    def body(self, job: Job) -> bytes:
        request = job.request
        choice = b'{"index":0,"text":"%b","logprobs":null,"finish_reason":"%b","matched_stop":%b}'
        filled = choice % (
            job.answer.text_to(request.produced),
            job.finish_kind.encode(),
            _dump(self.eos_id if job.asked.stops_by_itself else None),
        )
        usage = _dump(_usage(job, {"prompt_tokens_details": None}))
        head = _head(job, self.object, self.model)
        return head + b'[%b],"usage":%b,"metadata":{"weight_version":"default"}}' % (filled, usage)


@dataclass(slots=True)
class Chat:
    """`/v1/chat/completions`: a role event, events of new text, a reason event."""

    model: str
    eos_id: int = 0
    object: str = "chat.completion.chunk"
    _head: bytes = b""

    def events(self, job: Job, count: int) -> bytes:
        request = job.request
        text = job.answer.text_to(request.produced, request.produced - count)
        pieces = []
        if not self._head:
            self._head = b"data: " + _head(job, self.object, self.model) + b'[{"index":0,"delta":'
            pieces.append(self._event(b'"assistant"', b'""', b"null", b"null"))
        pieces.append(self._event(b"null", b'"%b"' % text, b"null", b"null"))
        if request.done:
            matched = _dump(self.eos_id if job.asked.stops_by_itself else None)
            reason = b'"%b"' % job.finish_kind.encode()
            pieces.append(self._event(b"null", b"null", reason, matched))
            details = {"prompt_tokens_details": None}
            pieces.append(_ending(job, self.object, self.model, details))
        return b"".join(pieces)

    def _event(self, role: bytes, content: bytes, reason: bytes, matched: bytes) -> bytes:
        return chunk(
            b'%b{"role":%b,"content":%b,"reasoning_content":null,"tool_calls":null},'
            b'"logprobs":null,"finish_reason":%b,"matched_stop":%b}],"usage":null}\n\n'
            % (self._head, role, content, reason, matched)
        )

    def body(self, job: Job) -> bytes:
        choice = (
            b'[{"index":0,"message":{"role":"assistant","content":"%b","reasoning_content":null,'
            b'"tool_calls":null},"logprobs":null,"finish_reason":"%b","matched_stop":%b}]'
        )
        filled = choice % (
            job.answer.text_to(job.request.produced),
            job.finish_kind.encode(),
            _dump(self.eos_id if job.asked.stops_by_itself else None),
        )
        usage = _dump(_usage(job, {"prompt_tokens_details": None}))
        head = _head(job, "chat.completion", self.model)
        return head + filled + b',"usage":%b,"metadata":{"weight_version":"default"}}' % usage


def _head(job: Job, name: str, model: str) -> bytes:
    fields = {"id": job.id, "object": name, "created": int(job.received_s), "model": model}
    return _dump(fields)[:-1] + b',"choices":'


def _usage(job: Job, more: dict[str, Any]) -> dict[str, Any]:
    prompt, completion = len(job.request.prompt), job.request.produced
    counts = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
    return counts | more | {"reasoning_tokens": 0}


def _ending(job: Job, name: str, model: str, details: dict[str, Any]) -> bytes:
    """Return what ends a stream: the usage, if it was asked for, `[DONE]`, the last chunk."""
    usage = b""
    if job.asked.include_usage:
        fields = _head(job, name, model) + b'[],"usage":' + _dump(_usage(job, details)) + b"}"
        usage = chunk(b"data: " + fields + b"\n\n")
    return usage + DONE + LAST_CHUNK
