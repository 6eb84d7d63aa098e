"""Continuous batching as a discrete-event engine: the same code in real and in virtual time.

The caller owns the clock. It submits requests, opens a step at a moment, learns when that step
ends, and then collects what the step produced. Waiting requests are prefilled before anything is
decoded, as many as fit into one chunk, and a request's first token comes with its prefill.
"""

from collections import deque
from dataclasses import dataclass, field

from simulator.model import Memory, Speed
from simulator.prefix_cache import PrefixCache, Tokens

# Golden-ratio walk over a Fibonacci number of strata: every stratum once a cycle, and any run of
# draws, however short, is spread evenly, so that the mean acceptance holds for each request.
STRATA, STRIDE = 4181, 2584


@dataclass(slots=True, eq=False)
class Request:
    """One generation: what was asked, and how far it has come. Times in engine seconds."""

    number: int
    prompt: Tokens
    output_len: int
    submitted_s: float = 0.0
    started_s: float = -1.0
    first_token_s: float = 0.0
    finished_s: float = 0.0
    cached: int = 0
    uncomputed: int = 0
    produced: int = 0
    verify_ct: int = 0
    aborted: bool = False

    @property
    def done(self) -> bool:
        return self.produced >= self.output_len


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the pretend GPU: prefill of `tokens` or one decode step over `batch` requests."""

    start_s: float
    end_s: float
    prefill: tuple[Request, ...]
    decode: tuple[Request, ...]
    tokens: int
    cached_tokens: int = 0


@dataclass(slots=True)
class Counters:
    """What the engine has done since it began, or since the cache was last flushed (`spec_`)."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    spec_tokens: int = 0
    spec_steps: int = 0
    finished: int = 0

    @property
    def accept_length(self) -> float:
        return self.spec_tokens / self.spec_steps if self.spec_steps else 0.0


def acceptance_deck(acceptance: float, steps: int) -> tuple[int, ...]:
    """Return one cycle of tokens per speculative step, 1 to `steps` + 1, at the exact mean.

    Geometric: draft k counts if all before it do; stratum u yields 1 + #{k: u < a^k}.
    """
    bounds = [acceptance**k for k in range(1, steps + 1)]
    order = (i * STRIDE % STRATA for i in range(STRATA))
    return tuple(1 + sum((i + 0.5) / STRATA < bound for bound in bounds) for i in order)


@dataclass(slots=True)
class Engine:
    """The scheduler's state. `time_scale` stretches every step: 0.5 is twice as fast."""

    speed: Speed
    memory: Memory
    chunk: int = 8192
    time_scale: float = 1.0
    radix: bool = True
    cache: PrefixCache = field(default_factory=PrefixCache)
    counters: Counters = field(default_factory=Counters)
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    reserved_tokens: int = 0
    deck: tuple[int, ...] = ()
    _decode_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.speed.speculative_steps:
            self.deck = acceptance_deck(self.speed.acceptance, self.speed.speculative_steps)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def submit(self, request: Request, at_s: float) -> None:
        request.submitted_s = at_s
        self.waiting.append(request)

    def abort(self, request: Request) -> None:
        """Give a request up, wherever it is; a step in flight produces nothing for it."""
        request.aborted = True
        if request in self.waiting:
            self.waiting.remove(request)
        if request in self.running:
            self._retire(request)

    def flush(self) -> bool:
        """Empty the prefix cache and the speculation averages; refused while anything runs."""
        if not self.idle:
            return False
        self.cache.clear()
        self.counters.spec_tokens = self.counters.spec_steps = 0
        return True

    def step(self, at_s: float) -> Step | None:
        """Decide the pass that begins at `at_s`, or None where there is nothing to do."""
        admitted, tokens, cached = self._admit(at_s)
        if admitted:
            duration = self.speed.prefill_s(tokens) * self.time_scale
            return Step(at_s, at_s + duration, tuple(admitted), (), tokens, cached)
        if not self.running:
            return None
        return Step(at_s, at_s + self._decode(len(self.running)), (), tuple(self.running), 0)

    def finish(self, step: Step) -> list[tuple[Request, int]]:
        """Carry a pass out and return each request with the tokens that it got."""
        if step.prefill:
            return self._finish_prefill(step)
        emitted: list[tuple[Request, int]] = []
        deck, counters = self.deck, self.counters
        for request in step.decode:
            if request.aborted:
                continue
            count = 1
            if deck:
                # Each request starts its walk elsewhere, so that a batch isn't in step.
                count = deck[(request.number * 1597 + request.verify_ct) % STRATA]
                request.verify_ct += 1
                counters.spec_steps += 1
                counters.spec_tokens += count
                count = min(count, request.output_len - request.produced)
            request.produced += count
            counters.generated_tokens += count
            emitted.append((request, count))
            if request.produced >= request.output_len:
                request.finished_s = step.end_s
                self._retire(request)
                counters.finished += 1
        return emitted

    def remember(self, tokens: Tokens) -> None:
        """Keep a finished request's prompt and answer for later prompts, as far as memory goes."""
        if self.radix:
            self.cache.insert(tokens)
            self.cache.trim(self.memory.max_total_num_tokens - self.reserved_tokens)

    def _decode(self, batch: int) -> float:
        if batch not in self._decode_s:
            self._decode_s[batch] = self.speed.decode_s(batch) * self.time_scale
        return self._decode_s[batch]

    def _admit(self, at_s: float) -> tuple[list[Request], int, int]:
        """Take waiting requests into one prefill pass, first come first served."""
        admitted: list[Request] = []
        tokens = cached = 0
        while self.waiting and tokens < self.chunk:
            request = self.waiting[0]
            if request.started_s < 0:
                if not self._start(request, at_s):
                    break
                cached += request.cached
            share = min(request.uncomputed, self.chunk - tokens)
            request.uncomputed -= share
            tokens += share
            admitted.append(request)
            if request.uncomputed:
                break  # the rest of a long prompt is the next pass's first
            self.waiting.popleft()
        return admitted, tokens, cached

    def _start(self, request: Request, at_s: float) -> bool:
        """Reserve room for a request's prompt and answer; False where there is none."""
        need = len(request.prompt) + request.output_len
        waits = self.reserved_tokens + need > self.memory.max_total_num_tokens and self.running
        if waits or len(self.running) >= self.memory.max_running_requests:
            return False
        self.reserved_tokens += need
        self.running.append(request)
        # The last prompt token is always computed: its output is the first token.
        request.cached = self.cache.match(request.prompt[:-1]) if self.radix else 0
        request.uncomputed = len(request.prompt) - request.cached
        request.started_s = at_s
        self.counters.prompt_tokens += len(request.prompt)
        self.counters.cached_tokens += request.cached
        return True

    def _finish_prefill(self, step: Step) -> list[tuple[Request, int]]:
        emitted: list[tuple[Request, int]] = []
        for request in step.prefill:
            if request.aborted or request.uncomputed:
                continue
            self.remember(request.prompt)
            request.first_token_s = step.end_s
            request.produced = 1
            self.counters.generated_tokens += 1
            emitted.append((request, 1))
            if request.done:
                request.finished_s = step.end_s
                self._retire(request)
                self.counters.finished += 1
        return emitted

    def _retire(self, request: Request) -> None:
        self.running.remove(request)
        self.reserved_tokens -= len(request.prompt) + request.output_len
