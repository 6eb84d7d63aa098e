"""From one captured stream to one request record: what came, and in which class it belongs.

Each request is in exactly one class:

- `finished`: status 200 and a whole stream, with a finish reason or the closing `[DONE]`
- `refused`: no connection
- `http_error`: another status, or an error that the server told within the stream
- `cut`: the connection or the stream ended before the answer did
- `malformed`: bytes that aren't HTTP, events that aren't the backend's, an answer in one piece
- `timeout`: not over within the request's time
- `abandoned`: we gave it up, because the load was stopped
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.measurement import RequestOutcome, RequestRecord
from tasks.load.capture import stream as endings
from tasks.load.captured import Captured
from tasks.load.response import Response, parse_frame, parse_response
from tasks.load.sse import timed_events
from tasks.load.target import Backend
from tasks.load.tokens import Trace, message_of, trace_tokens
from tasks.load.usual import read_usual

_WITHOUT_ANSWER = {
    endings.REFUSED: RequestOutcome.REFUSED,
    endings.TIMEOUT: RequestOutcome.TIMEOUT,
    endings.ABANDONED: RequestOutcome.ABANDONED,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of the requests of a load; `output_lens` has an entry a request."""

    backend: Backend
    output_lens: Sequence[int]
    paced: bool
    warmup: bool = False


def to_record(captured: Captured, asked: Asked) -> RequestRecord:
    """Parse a stream.

    The end is the arrival of the closing `[DONE]`, as in `sglang.bench_serving`; without one the
    arrival of the last byte, or, for a request that failed, the moment it was over.
    """
    response, trace = _understand(captured, asked.backend)
    outcome, error = _classify(captured, response, trace)
    sent_ns = captured.sent_ns or captured.closed_ns
    end_ns = captured.closed_ns
    if outcome is RequestOutcome.FINISHED:
        end_ns = trace.done_ns or captured.times[-1]
    return RequestRecord(
        index=captured.index,
        intended_ns=captured.due_ns if asked.paced else sent_ns,
        sent_ns=sent_ns,
        end_ns=end_ns,
        outcome=outcome,
        arrival_ns=array("q", trace.arrivals),
        cumulative_tokens=array("q", trace.counts),
        first_byte_ns=captured.times[0] if captured.times else None,
        first_text_ns=trace.first_text_ns,
        prompt_tokens=trace.prompt_tokens,
        completion_tokens=trace.completion_tokens,
        cached_tokens=trace.cached_tokens,
        verify_steps=trace.verify_steps,
        requested_tokens=asked.output_lens[captured.index],
        finish_reason=trace.finish_reason,
        http_status=response.status,
        error=error,
        warmup=asked.warmup,
    )


def _understand(captured: Captured, backend: Backend) -> tuple[Response, Trace]:
    """Read what was kept whole, and put what was kept as counts in its places."""
    response, trace = _read_whole(captured, backend)
    if captured.counts.size:
        trace.merge(captured.count_times, captured.counts)
    return response, trace


def _read_whole(captured: Captured, backend: Backend) -> tuple[Response, Trace]:
    """Read a usual answer by the short cut, any other one thoroughly."""
    if backend == "sglang" and captured.ending == endings.COMPLETE:
        response = parse_frame(captured.raw)
        if response.complete and response.status == 200:
            usual = read_usual(captured.raw, captured.sizes, captured.times)
            if usual is not None:
                return response, usual
    response = parse_response(captured.raw, captured.sizes)
    events = timed_events(response.body, response.marks, captured.times)
    return response, trace_tokens(backend, events)


def _classify(
    captured: Captured, response: Response, trace: Trace
) -> tuple[RequestOutcome, str | None]:
    """Decide the class and, unless finished, the one line that says why."""
    if captured.ending in _WITHOUT_ANSWER:
        return _WITHOUT_ANSWER[captured.ending], captured.error
    if response.fault is not None and response.status is None:
        return RequestOutcome.MALFORMED, f"not HTTP: {response.fault}"
    if response.status is None:
        return RequestOutcome.CUT, f"no answer: {captured.error}"
    if response.status != 200:
        return RequestOutcome.HTTP_ERROR, f"HTTP {response.status}: {message_of(response.body)}"
    if trace.error is not None:
        return RequestOutcome.HTTP_ERROR, f"in the stream: {trace.error}"
    if trace.fault is not None:
        return RequestOutcome.MALFORMED, trace.fault
    if response.fault is not None:
        return RequestOutcome.MALFORMED, f"not HTTP: {response.fault}"
    return _classify_end(captured, response, trace)


def _classify_end(
    captured: Captured, response: Response, trace: Trace
) -> tuple[RequestOutcome, str | None]:
    """Decide whether a stream without a fault in it came to its end."""
    if trace.done_ns is not None:
        return RequestOutcome.FINISHED, None
    so_far = f"after {trace.total} tokens"
    if not response.complete:
        return RequestOutcome.CUT, f"{so_far}: {captured.error or 'the connection ended'}"
    if trace.finish_reason is not None:
        return RequestOutcome.FINISHED, None
    if not trace.counts and not response.content_type.startswith("text/event-stream"):
        kind = response.content_type or "no content type"
        return RequestOutcome.MALFORMED, f"answered in one piece, not as a stream ({kind})"
    return RequestOutcome.CUT, f"{so_far}: the stream ended without a finish reason"
