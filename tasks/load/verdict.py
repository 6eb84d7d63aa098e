"""Whether a run can be trusted, judged by its records and by what the client says of itself.

Each check returns one line or nothing. `invalid` means that the numbers aren't those of the load
that was asked for; `suspect` that they may be, but something was not as it should be.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.domain.chunks import chunks_of
from tasks.domain.measurement import RequestOutcome, RequestRecord, RunVerdict, Validity
from tasks.load.capture.sight import LOOKS_PER_GAP
from tasks.load.capture.stream import ENOUGH
from tasks.load.metrics import in_columns, mean_in_flight, output_tokens, steady_window
from tasks.load.target import Level
from tasks.load.workers import CaptureFacts

MOST_FAILED_SHARE = 0.1
"""Above it the server did other work than was asked for: invalid."""

MOST_CACHED_SHARE = 0.1
"""Prompts are drawn so as to share nothing; a few tokens (a common first one) are normal."""

MOST_BUSY = 0.9
"""Share of its time a load process may compute before it can't keep up with bursts."""

MOST_LATE_SHARE = 0.05
"""Lateness of the sends, relative to the latency: of the mean (closed) or the 99th percentile."""

LEAST_LATE_MS = 2.0
"""Lateness below this is never held against a run."""

LEAST_STALL_MS = 2000.0
STALL_OVER_USUAL = 50
"""A stall is a gap between two chunks that is so long, and so many times the median gap."""

MOST_RATE_ERROR = 0.01
LEAST_IN_FLIGHT_SHARE = 0.9
MOST_MERGED_SHARE = 0.005
"""Half of what the 99th percentile of the gaps leaves aside: so few don't move it."""

LEAST_BUSY_S = 0.5
MOST_STARVED_SHARE = 0.05
MOST_GROWTH = 1.5
LEAST_FOR_GROWTH = 40
_CLOCK_STEP_NS = 1_000_000

Findings = Iterable[str | None]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a verdict rests on; `late_ms` is how late each request was sent.

    `shares` says that the prompts have beginnings in common, which a prefix cache may find.
    """

    level: Level
    asked_requests: int
    records: Sequence[RequestRecord]
    metrics: Mapping[str, float]
    facts: CaptureFacts
    late_ms: Sequence[float]
    shares: bool = False

    @property
    def finished(self) -> list[RequestRecord]:
        """The requests that finished."""
        return [r for r in self.records if r.outcome is RequestOutcome.FINISHED]


def judge(evidence: Evidence) -> RunVerdict:
    """Judge a run; every reason is given, the grave ones first."""
    invalid = [reason for reason in _grave(evidence) if reason]
    suspect = [reason for reason in _doubtful(evidence) if reason]
    disturbed = [reason for reason in _disturbed(evidence) if reason]
    reasons = (*invalid, *suspect, *disturbed)
    if invalid:
        return RunVerdict(Validity.INVALID, reasons)
    if reasons:
        return RunVerdict(Validity.SUSPECT, reasons, disturbed=not suspect)
    return RunVerdict(Validity.VALID)


def _grave(evidence: Evidence) -> Findings:
    yield _nothing_finished(evidence)
    yield _server_died(evidence)
    if _failed_share(evidence) > MOST_FAILED_SHARE:
        yield _failures(evidence)
    yield _not_a_number(evidence)


def _doubtful(evidence: Evidence) -> Findings:
    if 0 < _failed_share(evidence) <= MOST_FAILED_SHARE:
        yield _failures(evidence)
    yield _cut_short(evidence)
    yield _other_length(evidence)
    yield _too_few(evidence)
    yield _stalled(evidence)
    yield _queue_grows(evidence)
    yield _pace_changed(evidence)
    yield _cache_warm(evidence)
    yield _client_busy(evidence)
    yield _clock_stepped(evidence)


def _disturbed(evidence: Evidence) -> Findings:
    """What a client that had its core when it needed one would not have met."""
    yield _late(evidence)
    yield _rate_missed(evidence)
    yield _slots_empty(evidence)
    yield _client_behind(evidence)
    yield _clock_starved(evidence)


def _nothing_finished(evidence: Evidence) -> str | None:
    if evidence.finished:
        return None
    return f"no request finished, of {len(evidence.records)} sent"


def _server_died(evidence: Evidence) -> str | None:
    if evidence.facts.stopped == "server hangs":
        return f"server hung after {len(evidence.finished)} of {evidence.asked_requests} requests"
    if evidence.facts.stopped not in ("refused", "server died"):
        return None
    refused = [r.error for r in evidence.records if r.outcome is RequestOutcome.REFUSED]
    if refused and not evidence.finished:
        return f"the server can't be reached: {refused[0]}"
    return f"server died after {len(evidence.finished)} of {evidence.asked_requests} requests"


def _cut_short(evidence: Evidence) -> str | None:
    if evidence.facts.stopped in ("", ENOUGH, "refused", "server died", "server hangs"):
        return None
    done, asked = len(evidence.finished), evidence.asked_requests
    return f"stopped ({evidence.facts.stopped}) after {done} of {asked} requests"


def _failed_share(evidence: Evidence) -> float:
    """Share of the sent requests that failed; those that we gave up ourselves don't count."""
    failed = len(evidence.records) - len(evidence.finished) - _abandoned(evidence)
    return failed / max(1, len(evidence.records))


def _abandoned(evidence: Evidence) -> int:
    return sum(r.outcome is RequestOutcome.ABANDONED for r in evidence.records)


def _failures(evidence: Evidence) -> str:
    """Name each class of failure with its number and, of the most frequent, one message."""
    usual = (RequestOutcome.FINISHED, RequestOutcome.ABANDONED)
    failed = [record for record in evidence.records if record.outcome not in usual]
    classes = Counter(record.outcome.value for record in failed).most_common()
    counts = ", ".join(f"{number} {name}" for name, number in classes)
    example = next(r.error for r in failed if r.outcome.value == classes[0][0])
    return f"{len(failed)} of {len(evidence.records)} requests failed ({counts}): {example}"


def _not_a_number(evidence: Evidence) -> str | None:
    stopped = sum("nan" in (r.finish_reason or "").lower().split() for r in evidence.records)
    if stopped:
        return f"{stopped} requests ended because the server computed NaN"
    wrong = [name for name, value in evidence.metrics.items() if not math.isfinite(value)]
    return f"{', '.join(wrong)}: not a number" if wrong else None


def _other_length(evidence: Evidence) -> str | None:
    other = [
        record
        for record in evidence.finished
        if record.requested_tokens not in (None, output_tokens(record))
    ]
    if not other:
        return None
    first = other[0]
    return (
        f"{len(other)} of {len(evidence.finished)} requests have another length than asked for, "
        f"the first {output_tokens(first)} tokens instead of {first.requested_tokens}"
    )


def _too_few(evidence: Evidence) -> str | None:
    """Fewer requests than slots: the concurrency is never reached. More is a matter of noise."""
    slots = evidence.level.concurrency
    if slots is None or evidence.asked_requests >= slots:
        return None
    return f"too few requests: {evidence.asked_requests} never fill {slots} slots"


def _stalled(evidence: Evidence) -> str | None:
    """Name the longest silence within a stream, where it is far out of the ordinary."""
    longest_ms = evidence.metrics.get("max_icl_ms", 0.0)
    usual_ms = evidence.metrics.get("median_icl_ms", 0.0)
    if longest_ms < max(LEAST_STALL_MS, STALL_OVER_USUAL * usual_ms):
        return None
    return f"a stream stood still for {longest_ms / 1e3:.1f} s"


def _late(evidence: Evidence) -> str | None:
    """Late sends: in the open loop they distort the arrivals, in the closed one they idle slots."""
    if not evidence.late_ms or not evidence.finished:
        return None
    closed = evidence.level.concurrency is not None
    late = float(np.mean(evidence.late_ms) if closed else np.percentile(evidence.late_ms, 99))
    bound = MOST_LATE_SHARE * evidence.metrics["mean_e2e_latency_ms"]
    if late <= max(bound, LEAST_LATE_MS):
        return None
    kind = "on average" if closed else "at the 99th percentile"
    return f"requests were sent {late:.1f} ms late {kind}: {_why_late(evidence)}"


def _why_late(evidence: Evidence) -> str:
    """Whether the load client was too slow, or had no core to run on."""
    if _starved(evidence):
        return f"the client waited {evidence.facts.starved_s:.1f} s for a core of a busy machine"
    return "the client can't keep up"


def _starved(evidence: Evidence) -> bool:
    return evidence.facts.starved_s > MOST_STARVED_SHARE * evidence.metrics["duration"]


def _rate_missed(evidence: Evidence) -> str | None:
    """Compare the sends with the schedule as drawn, not with its mean, which chance misses."""
    sent = [record for record in evidence.records if record.sent_ns]
    if evidence.level.request_rate is None or len(sent) < 2:
        return None
    drawn = sent_span(record.intended_ns for record in sent)
    real = sent_span(record.sent_ns for record in sent)
    if drawn <= 0 or abs(real / drawn - 1) <= MOST_RATE_ERROR:
        return None
    return f"the rate was {drawn / real:.1%} of the schedule's"


def sent_span(times_ns: Iterable[int]) -> int:
    """From the first to the last of some times."""
    times = list(times_ns)
    return max(times) - min(times)


def _slots_empty(evidence: Evidence) -> str | None:
    """Little's law within the steady window: as many in flight as there are slots."""
    slots = evidence.level.concurrency
    window = steady_window(evidence.records, slots) if slots else None
    if slots is None or window is None or evidence.asked_requests < slots:
        return None
    reached = mean_in_flight(evidence.records, window)
    if reached >= LEAST_IN_FLIGHT_SHARE * slots:
        return None
    return f"only {reached:.1f} requests were in flight on average, of {slots} asked for"


def _queue_grows(evidence: Evidence) -> str | None:
    """Open loop: the server can't keep up with the rate if latency grows during the run."""
    finished = sorted(evidence.finished, key=lambda record: record.intended_ns)
    if evidence.level.request_rate is None or len(finished) < LEAST_FOR_GROWTH:
        return None
    e2e = np.array([record.end_ns - record.intended_ns for record in finished], np.float64)
    early, late = (float(half.mean()) for half in np.array_split(e2e, 2))
    if late <= MOST_GROWTH * early:
        return None
    return f"not stationary: latency grew {late / early:.1f}-fold from one half to the other"


def _pace_changed(evidence: Evidence) -> str | None:
    """Closed loop: the usual latency of both halves is one, or the server was not in one state.

    It was not warm yet, or throttled later. The first round doesn't count, whose prompts come all
    at once, nor do prompts that share their beginnings: they cost less and less, or more and more.
    """
    slots = evidence.level.concurrency
    finished = sorted(evidence.finished, key=lambda record: record.sent_ns)
    if slots is None or evidence.shares or len(finished) < max(LEAST_FOR_GROWTH, 4 * slots):
        return None
    e2e = np.array([record.end_ns - record.sent_ns for record in finished[slots:]], np.float64)
    early, late = (float(np.median(half)) for half in np.array_split(e2e, 2))
    if 1 / MOST_GROWTH <= late / early <= MOST_GROWTH:
        return None
    way = f"grew {late / early:.1f}-fold" if late > early else f"fell to {late / early:.0%}"
    return f"not stationary: latency {way} from one half to the other"


def _cache_warm(evidence: Evidence) -> str | None:
    if evidence.shares:
        return None
    cached, total = evidence.metrics["cached_tokens"], evidence.metrics["total_input_tokens"]
    if not total or cached <= MOST_CACHED_SHARE * total or cached <= 2 * len(evidence.finished):
        return None
    return f"{cached / total:.0%} of the prompt tokens came from the server's prefix cache"


def _client_busy(evidence: Evidence) -> str | None:
    """Judged of loads that last: a short one is all start-up."""
    if evidence.facts.busy <= MOST_BUSY or evidence.metrics["duration"] < LEAST_BUSY_S:
        return None
    return f"the load client was saturated ({evidence.facts.busy:.0%} of a core)"


def _client_behind(evidence: Evidence) -> str | None:
    """Chunks that arrive between two looks at a socket are one arrival to us: the last one's.

    A server may send two chunks at once as well; so the client is blamed for those alone that came
    together while it was kept from looking for a good part of the usual gap between chunks.
    """
    gap_ns = evidence.metrics.get("median_icl_ms", 0.0) * 1e6
    long = [
        blink for blink in evidence.facts.blinks_ns if blink[1] - blink[0] > gap_ns / LOOKS_PER_GAP
    ]
    chunks, firsts = merged_shares(evidence.finished, long)
    if max(chunks, firsts) <= MOST_MERGED_SHARE:
        return None
    told = f"{chunks:.1%} of the chunks arrived together with the one before"
    if firsts > chunks:
        told = f"the first chunk of {firsts:.1%} of the requests arrived together with the next"
    return (
        f"the load client was kept from reading ({len(long)} times, for up to "
        f"{max(until - since for since, until in long) / 1e6:.1f} ms): {told}"
    )


def _clock_starved(evidence: Evidence) -> str | None:
    """Times that are our own clock's at the read are as late as we were."""
    facts = evidence.facts
    if facts.timestamps == "kernel" or not _starved(evidence):
        return None
    return (
        f"the client waited {facts.starved_s:.1f} s for a core of a busy machine, "
        "and the arrivals have no time stamps of the kernel's"
    )


def merged_shares(
    records: Sequence[RequestRecord], within: Sequence[tuple[int, int]]
) -> tuple[float, float]:
    """Share of the chunks, after each request's first, that have the time of the one before.

    And that of the requests whose first chunk has the time of the next, so that their TTFT is too
    long. Only those count that arrived within one of the intervals.
    """
    if not within or not records:
        return 0.0, 0.0
    requests = in_columns(records)
    chunks = chunks_of(requests)
    since, until = np.array(sorted(within), np.int64).T
    latest = np.searchsorted(since, chunks.times) - 1
    ours = (latest >= 0) & (chunks.times <= np.maximum.accumulate(until)[latest])
    merged = ours & chunks.follows & (chunks.gaps == 0)
    seconds = requests.bounds[:-1][requests.lengths > 1] + 1
    return (
        float(merged.sum() / max(1, chunks.follows.sum())),
        float(merged[seconds].sum() / len(records)),
    )


def _clock_stepped(evidence: Evidence) -> str | None:
    step_ns = evidence.facts.clock_step_ns
    if step_ns <= _CLOCK_STEP_NS or evidence.facts.timestamps != "kernel":
        return None
    return f"the system clock was stepped by {step_ns / 1e6:.1f} ms during the run"
