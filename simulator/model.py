"""How fast the pretend host is: pure formulas over one frozen dataclass of parameters.

A decode step over a batch of `b` requests takes, in milliseconds,

    step(b) = [ (weights_ms * 8/tp + per_sequence_ms * (b - 1)) * stack
                + comm_ms * (1 + channel_penalty * log2(channels/16)^2) * 2(tp-1)/tp / (7/4) ]
              * [ 1 + graph_pool_penalty * max(0, log2(graph_max_bs/128))^2 ]
              + (eager_ms if b > graph_max_bs)

and produces one token a request. With `n` speculative steps, verifying `m` tokens a request,

    step(b) becomes step over b*m sequences' worth of tokens
              + (speculation_ms + draft_ms * n + verify_ms * m^2) * stack's speculation factor

and produces a random number of tokens a request, 1 to n+1, whose mean is
`1 + a + a^2 + ... + a^n` (each draft token is accepted with probability `a`, in order; the one
more is the bonus token). A prefill pass over `t` uncached tokens takes
`prefill_base_ms + prefill_ms_per_token * t`.

Memory of one GPU: weights + draft weights + CUDA graphs (`graph_mib_per_bs` for each unit of
graph_max_bs) + activations + KV cache; what graphs take, the KV cache lacks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.flags import Configuration

SPECULATIVE_MAX_RUNNING = 48  # what SGLang assumes where speculation is on and nothing is asked


@dataclass(frozen=True, slots=True)
class StackSpeed:
    """How a software stack compares: factors on compute and on what speculation adds."""

    compute: float = 1.0
    speculation: float = 1.0


@dataclass(frozen=True, slots=True)
class Parameters:
    """The pretend host. Times in milliseconds, memory in MiB a GPU unless the name says else.

    The defaults give, at tp 8, 16 channels and `--cuda-graph-max-bs 128`, a lone request
    92.6 tokens/s without speculation and 96.1 with EAGLE3 at its best step count, 3; 128 is 9 %
    faster than no `--cuda-graph-max-bs` (512 then). On the stack cu128: 89.5 and 54.1.
    """

    weights_ms: float = 7.6
    per_sequence_ms: float = 0.18
    comm_ms: float = 1000 / 92.6 - 7.6
    best_channels: int = 16
    auto_channels: int = 8
    channel_penalty: float = 0.12
    graph_pool_knee: int = 128
    graph_pool_penalty: float = 0.0225
    eager_ms: float = 8.0
    prefill_base_ms: float = 20.0
    prefill_ms_per_token: float = 0.04
    acceptance: Mapping[str, float] = field(
        default_factory=lambda: {"EAGLE3": 0.7, "EAGLE": 0.6, "NEXTN": 0.65, "STANDALONE": 0.6}
    )
    other_acceptance: float = 0.45
    speculation_ms: float = 8.9588
    draft_ms: float = 0.1
    verify_ms: float = 0.36
    gpu_mib: float = 97_887.0
    activation_mib: float = 11_500.0
    weights_mib: float = 76_160.0
    draft_weights_mib: float = 3_072.0
    graph_mib_per_bs: float = 12.0
    kv_mib_per_token: float = 0.0684
    context_length: int = 131_072
    stacks: Mapping[str, StackSpeed] = field(
        default_factory=lambda: {"cu128": StackSpeed(compute=1.0492, speculation=2.3358)}
    )


@dataclass(frozen=True, slots=True)
class Speed:
    """One configuration on the pretend host, reduced to what a scheduler needs to know."""

    parameters: Parameters
    weights_ms: float
    comm_ms: float
    pool_factor: float
    graph_max_bs: int
    stack: StackSpeed
    speculative_steps: int
    verify_tokens: int
    acceptance: float
    speedup: float = 1.0

    def decode_s(self, batch: int) -> float:
        """Return the seconds that one decode step over `batch` requests takes."""
        p = self.parameters
        sequences = batch * self.verify_tokens
        compute = (self.weights_ms + p.per_sequence_ms * (sequences - 1)) * self.stack.compute
        total = (compute + self.comm_ms) * self.pool_factor
        if batch > self.graph_max_bs:
            total += p.eager_ms
        return (total + self._speculation_ms()) / 1000 / self.speedup

    def _speculation_ms(self) -> float:
        if not self.speculative_steps:
            return 0.0
        p = self.parameters
        added = p.draft_ms * self.speculative_steps + p.verify_ms * self.verify_tokens**2
        return (p.speculation_ms + added) * self.stack.speculation

    def prefill_s(self, tokens: int) -> float:
        """Return the seconds that a prefill pass over `tokens` uncached tokens takes."""
        p = self.parameters
        total = p.prefill_base_ms + p.prefill_ms_per_token * tokens * self.stack.compute
        return total / 1000 / self.speedup

    @property
    def accept_length(self) -> float:
        """Return the mean tokens a request gets from one decode step, bonus token included."""
        return sum(self.acceptance**k for k in range(self.speculative_steps + 1))

    def single_stream_tokens_per_s(self) -> float:
        """Return the decode rate that one lone request sees."""
        return self.accept_length / self.decode_s(1)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where one GPU's memory goes, in MiB, and what that allows."""

    weights_mib: float
    graph_mib: float
    kv_mib: float
    mem_fraction_static: float
    max_total_num_tokens: int
    max_running_requests: int
    graphs_fit: bool
    weights_fit: bool


def speed_of(
    configuration: Configuration,
    environment: Mapping[str, str],
    parameters: Parameters,
    speedup: float = 1.0,
) -> Speed:
    """Return how fast this configuration is; `environment` gives NCCL's channels and the stack."""
    p, tp = parameters, configuration.tp_size
    octave = math.log2(channels(environment, p) / p.best_channels)
    comm = p.comm_ms * (1 + p.channel_penalty * octave**2) * (2 * (tp - 1) / tp) / 1.75
    graph_bs = configuration.cuda_graph_max_bs
    above = max(0.0, math.log2(max(1, graph_bs) / p.graph_pool_knee))
    speculation = configuration.speculation
    acceptance = p.other_acceptance
    if speculation:
        acceptance = p.acceptance.get(speculation.algorithm, p.other_acceptance)
    return Speed(
        parameters=p,
        weights_ms=p.weights_ms * 8 / tp,
        comm_ms=comm,
        pool_factor=1 + p.graph_pool_penalty * above**2,
        graph_max_bs=graph_bs,
        stack=p.stacks.get(environment.get("SIMULATOR_STACK", ""), StackSpeed()),
        speculative_steps=speculation.steps if speculation else 0,
        verify_tokens=speculation.draft_tokens if speculation else 1,
        acceptance=acceptance,
        speedup=speedup,
    )


def channels(environment: Mapping[str, str], parameters: Parameters) -> int:
    """Return NCCL's channels: its own choice, pushed into what the environment allows."""
    low = int(environment.get("NCCL_MIN_NCHANNELS") or 1)
    high = int(environment.get("NCCL_MAX_NCHANNELS") or 1024)
    return max(1, min(max(parameters.auto_channels, low), high))


def memory_of(
    configuration: Configuration, parameters: Parameters, weights_total_mib: float | None = None
) -> Memory:
    """Return where a GPU's memory goes; `weights_total_mib` is the checkpoint's size, if known."""
    p = parameters
    weights = weights_total_mib / configuration.tp_size if weights_total_mib else p.weights_mib
    if configuration.speculation:
        weights += p.draft_weights_mib
    graph = configuration.cuda_graph_max_bs * p.graph_mib_per_bs
    asked = configuration.mem_fraction_static
    fraction = asked or round((p.gpu_mib - p.activation_mib - graph) / p.gpu_mib, 3)
    kv = fraction * p.gpu_mib - weights
    tokens = max(0, int(kv / p.kv_mib_per_token))
    if configuration.max_total_tokens:
        tokens = min(tokens, configuration.max_total_tokens)
    left = p.gpu_mib * (1 - fraction) - p.activation_mib * 0.5
    return Memory(
        weights_mib=weights,
        graph_mib=graph,
        kv_mib=tokens * p.kv_mib_per_token,
        mem_fraction_static=fraction,
        max_total_num_tokens=tokens,
        max_running_requests=_max_running(configuration, tokens, p),
        graphs_fit=graph <= left + 1,
        weights_fit=weights < p.gpu_mib,
    )


def _max_running(configuration: Configuration, tokens: int, parameters: Parameters) -> int:
    if configuration.max_running_requests:
        return configuration.max_running_requests
    if configuration.speculation:
        return SPECULATIVE_MAX_RUNNING
    return max(min(int(tokens / parameters.context_length * 512), 4096), 2048)
