"""A launch, phase by phase, with SGLang's own progress lines and the failures that each can have.

Phase lengths are seconds at `launch_time_scale` 1, roughly those of a 600 GB checkpoint on eight
GPUs whose files are in the page cache.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from simulator import logs, messages, processes
from simulator.devices import OTHER_MIB, Holder, control_files, holders, visible_gpus
from simulator.flags import server_args
from simulator.launch import Launch, capture_sizes
from simulator.nodes import Nodes

IMPORT_S, DISTRIBUTED_S, LOAD_S, POOL_S, GRAPH_S, WARMUP_S = 6.0, 3.0, 42.0, 1.5, 0.35, 1.5
SHARDS = 8
# What versions call the same thing: joining the other ranks, and the bar of the shards.
WORDING = {"0.5.23": ("Init parallel", "Multi-thread loading shards:")}
USUAL_WORDING = ("Init torch distributed", "Loading safetensors checkpoint shards:")
LEAKED = "leaked"  # the child that is to outlive its parent


class SchedulerFailed(Exception):
    """A scheduler process hit an exception while starting: its traceback, and its rank."""

    def __init__(self, traceback: str, rank: int = 0) -> None:
        super().__init__(traceback)
        self.traceback, self.rank = traceback, rank


@dataclass(slots=True)
class Boot:
    """Starts the processes of a server and tells how far it is."""

    launch: Launch
    nodes: Nodes = field(default_factory=Nodes)
    # What each child is: `scheduler_<rank>`, `detokenizer` or LEAKED.
    children: dict[int, str] = field(default_factory=dict)
    sleep: Callable[[float], None] = time.sleep

    def owned(self) -> list[int]:
        """Return the children that end with their parent."""
        return [pid for pid, name in self.children.items() if name != LEAKED]

    def run(self) -> None:
        """Go through all phases; SchedulerFailed, or death, if one fails."""
        launch = self.launch
        self._wait(IMPORT_S + self._slow("import"))
        logs.log(f"server_args={server_args(launch.configuration.arguments)}")
        self._spawn()
        self._distributed()
        self._check_devices()
        self._load("weights", launch.memory.weights_mib)
        self._pool()
        self._capture(draft=False)
        if launch.configuration.speculation:
            self._load("draft", launch.scenario.parameters.draft_weights_mib)
            self._capture(draft=True)
        self.nodes.meet()
        self._announce()

    @property
    def ranks(self) -> range:
        """Return the tensor-parallel ranks of this node."""
        return self.nodes.ranks(self.launch.configuration.tp_size)

    @property
    def _wording(self) -> tuple[str, str]:
        return WORDING.get(self.launch.version, USUAL_WORDING)

    def _say(self, message: str) -> None:
        logs.log(message, self.launch.rank(self.ranks[0]))

    def _wait(self, seconds: float) -> None:
        scaled = seconds * self.launch.scenario.launch_time_scale
        if scaled > 0:
            self.sleep(scaled)

    def _slow(self, phase: str) -> float:
        """Return the seconds that `slow-start` adds to a phase (its default is weight loading)."""
        fault = self.launch.faults.get("slow-start")
        if fault and fault.details.get("phase", "load") == phase:
            return fault.number("seconds", 60)
        return 0.0

    def _spawn(self) -> None:
        """Start the schedulers, each on its GPU, and the detokenizer."""
        gpus = self._gpus()
        control = control_files(self.launch.root) if self.launch.root else []
        for place, rank in enumerate(self.ranks):
            held = [gpus[place], *control] if place < len(gpus) else []
            pid = processes.spawn(f"sglang::scheduler_TP{rank}", held)
            self.children[pid] = f"scheduler_{rank}"
        if self.nodes.rank == 0:
            self.children[processes.spawn("sglang::detokenizer", [])] = "detokenizer"
        if "leaky-child" in self.launch.faults:
            title = f"sglang::scheduler_TP{self.ranks[0]}"
            orphan = processes.spawn(title, [*gpus, *control], orphan=True)
            self.children[orphan] = LEAKED

    def _gpus(self) -> list[Path]:
        """Return the device files of our ranks, in order."""
        if not self.launch.root:
            return []
        arguments = self.launch.configuration.arguments
        first, step = arguments.get("base_gpu_id", 0), arguments.get("gpu_id_step", 1)
        visible = visible_gpus(self.launch.root, self.launch.environment)
        return visible[first::step][: len(self.ranks)]

    def _distributed(self) -> None:
        joining = self._wording[0]
        self._say(f"{joining} begin.")
        if "nccl-hang" in self.launch.faults:
            while True:
                signal.pause()
        if self.launch.root and len(self._gpus()) < len(self.ranks):
            raise SchedulerFailed(messages.bad_ordinal(), self.ranks[len(self._gpus())])
        self.nodes.join()
        self._wait(DISTRIBUTED_S + self._slow("distributed"))
        self._say(f"{joining} ends. elapsed=2.87 s, mem usage=0.71 GB")

    def _check_devices(self) -> None:
        """Fail as torch does where processes of another server still hold our GPUs."""
        gpus = self._gpus()
        others = [h for h in holders(gpus) if h.pid not in self.children and h.used_mib > OTHER_MIB]
        if not others:
            return
        total = self.launch.scenario.parameters.gpu_mib
        first = others[0]
        if len({holder.device for holder in others}) < len(gpus):
            free = (total - first.used_mib) / 1024
            raise SchedulerFailed(messages.unbalanced(round(free, 1), round(total / 1024, 1)))
        raise SchedulerFailed(self._occupied(gpus, first))

    def _occupied(self, gpus: list[Path], holder: Holder) -> str:
        gpu, total = gpus.index(holder.device), self.launch.scenario.parameters.gpu_mib
        return messages.weights_out_of_memory(gpu, total, (holder.pid, holder.used_mib))

    def _load(self, what: str, mib: float) -> None:
        """Load weights, shard by shard."""
        parameters = self.launch.scenario.parameters
        available = (parameters.gpu_mib - (0 if what == "weights" else self._weights_mib())) / 1024
        self._say(f"Load weight begin. avail mem={available:.2f} GB")
        seconds = LOAD_S if what == "weights" else LOAD_S / 20
        shards = SHARDS if what == "weights" else 1
        for shard in range(shards + 1):
            if what == "weights" and shard == shards // 2:
                self._fail_in_mid_load()
            if shard:
                self._wait((seconds + self._slow("load")) / shards)
            logs.write(_bar(self._wording[1], shard, shards, seconds) + "\n")
        logs.write("\n")
        self._say(
            f"Load weight end. elapsed={seconds:.2f} s, type={self._type(what)}, "
            f"dtype=torch.bfloat16, avail mem={available - mib / 1024:.2f} GB, "
            f"mem usage={mib / 1024:.2f} GB."
        )

    def _weights_mib(self) -> float:
        draft = self.launch.scenario.parameters.draft_weights_mib
        return self.launch.memory.weights_mib - (
            draft if self.launch.configuration.speculation else 0
        )

    def _type(self, what: str) -> str:
        return self.launch.architecture if what == "weights" else "LlamaForCausalLMEagle3"

    def _fail_in_mid_load(self) -> None:
        fault = self.launch.faults.get("silent-kill")
        if fault and not {"after_requests", "after_s"} & fault.details.keys():
            kill_silently()
        if not self.launch.memory.weights_fit:
            total = self.launch.scenario.parameters.gpu_mib
            raise SchedulerFailed(messages.weights_out_of_memory(0, total, None))

    def _pool(self) -> None:
        memory = self.launch.memory
        self._wait(POOL_S + self._slow("pool"))
        self._say("Using KV cache dtype: torch.bfloat16")
        if memory.max_total_num_tokens <= 0:
            raise SchedulerFailed(messages.not_enough_memory(memory.mem_fraction_static))
        size = memory.kv_mib / 1024
        self._say(
            f"KV Cache is allocated. #tokens: {memory.max_total_num_tokens}, KV size: {size:.2f} GB"
        )
        self._say(f"Memory pool end. avail mem={self._left_gb():.2f} GB")

    def _left_gb(self) -> float:
        memory, total = self.launch.memory, self.launch.scenario.parameters.gpu_mib
        return (total - memory.weights_mib - memory.kv_mib) / 1024

    def _capture(self, draft: bool) -> None:
        """Capture the graphs, largest first, unless they are off."""
        largest = self.launch.configuration.cuda_graph_max_bs
        if not largest:
            return
        which = "draft cuda graph" if draft else "cuda graph"
        left = self._left_gb() - (self.launch.memory.graph_mib / 1024 if draft else 0)
        self._say(
            f"Capture {which} begin. This can take up to several minutes. avail mem={left:.2f} GB"
        )
        sizes = capture_sizes(largest)
        if not draft:
            self._say(f"Capture {which} bs {sizes}")
        self._capture_all(sizes, left)
        elapsed, used = len(sizes) * GRAPH_S, 0.25 if draft else self.launch.memory.graph_mib / 1024
        self._say(
            f"Capture {which} end. Time elapsed: {elapsed:.2f} s. mem usage={used:.2f} GB. "
            f"avail mem={max(0.0, left - used):.2f} GB."
        )

    def _capture_all(self, sizes: list[int], left_gb: float) -> None:
        total = self.launch.scenario.parameters.gpu_mib
        for done, size in enumerate(reversed(sizes)):
            text = f"Capturing batches (bs={size} avail_mem={left_gb:.2f} GB):"
            if done % 8 == 0:
                logs.write(_bar(text, done, len(sizes), len(sizes) * GRAPH_S, blocks=True))
            if done == 1 or len(sizes) == 1:
                failed = "oom-graph-capture" in self.launch.faults
                if failed or not self.launch.memory.graphs_fit:
                    logs.write("\n")
                    gpu = len(self.ranks) - 1
                    raise SchedulerFailed(messages.capture_failed(gpu, total), self.ranks[-1])
            self._wait(GRAPH_S + self._slow("capture") / len(sizes))
        text = f"Capturing batches (bs={sizes[0]} avail_mem={left_gb:.2f} GB):"
        logs.write(_bar(text, len(sizes), len(sizes), len(sizes) * GRAPH_S, blocks=True) + "\n")

    def _announce(self) -> None:
        launch, memory = self.launch, self.launch.memory
        longest = launch.configuration.arguments.get("max_prefill_tokens", 16384)
        left = max(0.1, self._left_gb())
        self._say(
            f"max_total_num_tokens={memory.max_total_num_tokens}, "
            f"chunked_prefill_size={launch.configuration.chunked_prefill_size}, "
            f"max_prefill_tokens={longest}, "
            f"max_running_requests={memory.max_running_requests}, "
            f"context_len={launch.context_length}, available_gpu_mem={left:.2f} GB"
        )


def _bar(text: str, done: int, total: int, seconds: float, blocks: bool = False) -> str:
    """Return one state of a tqdm bar; each begins with a carriage return, as tqdm's do."""
    percent = 100 * done // total
    gone = seconds * done / total
    left = f"{int(seconds - gone) // 60:02}:{int(seconds - gone) % 60:02}" if done else "?"
    rate = f"{seconds / total:5.2f}s/it" if done else "?it/s"
    filled = "#" * (done * 10 // total)
    middle = f"{percent:3}%|{filled:<10}|" if blocks else f"{percent:3}% Completed |"
    clock = f"{int(gone) // 60:02}:{int(gone) % 60:02}"
    return f"\r{text} {middle} {done}/{total} [{clock}<{left}, {rate}]"


def kill_silently() -> None:
    """End like a process that the kernel's OOM killer took: at once, without a word."""
    signal.raise_signal(signal.SIGKILL)
