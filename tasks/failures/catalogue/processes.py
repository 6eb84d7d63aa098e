"""Processes that were killed, got stuck or went silent, and what they left behind."""

from tasks.domain.diagnosis import Action, Cleanup, Phase, Remedy
from tasks.failures.catalogue.entry import Mode, Sign, Spread, Variant, Weight

_LIFE = (Phase.WEIGHTS, Phase.KV_CACHE, Phase.GRAPH_CAPTURE, Phase.SERVING)
_UNBALANCED = r"(?:Error|Exception): The memory capacity is unbalanced"
_DRAFT = (
    r"(?:Capture cuda graph end|max_total_num_tokens=)[\s\S]*Init torch distributed begin"
    r"|eagle_worker|draft_worker|init_draft"
)
_CHECK_OFF = "switch the memory balance check off"

MODES = (
    Mode(
        "scheduler-watchdog-timeout",
        "The scheduler did nothing for as long as its watchdog allows and was killed. Raise"
        " --watchdog-timeout; if it comes back, it is a hang to report.",
        Action.RETRY,
        (Phase.SERVING, Phase.GRAPH_CAPTURE),
        (
            Sign(
                r"[Ww]atchdog timeout \(self\.watchdog_timeout=",
                unless=r"soft=True",
                weight=Weight.SYMPTOM,
            ),
        ),
        Remedy("give the scheduler's watchdog half an hour", args={"watchdog_timeout": 1800}),
    ),
    Mode(
        "host-oom-kill",
        "A scheduler was killed with SIGKILL, most often by the kernel for want of host memory"
        " (dmesg -T | grep -i oom). Give the container more memory, or offload less to the CPU.",
        Action.STOP,
        _LIFE,
        (
            Sign(
                r"(?:crashed with exit code|[Ee]xit code:?) \(?-9\b",
                weight=Weight.SYMPTOM,
            ),
            Sign(r"\(exit code: -9\)", weight=Weight.SYMPTOM),
            Sign(r"Out of memory: Killed process \d+|Memory cgroup out of memory"),
            Sign(r"oom-kill:|invoked oom-killer|\bOOMKilled\b"),
            # SGLang kills itself, too, once a scheduler has told of its failure.
            Sign(
                r"^\S*\s*(?:\S+: line \d+:\s+\d+ )?Killed\b",
                away=r"hit an exception: Traceback|igquit from a child|SIGQUIT received",
                weight=Weight.SYMPTOM,
            ),
            Sign(r"Not enough host memory", raised=True),
        ),
        variants=(
            Variant(
                r"died during initialization \(exit code: -9\)",
                Action.PRUNE,
                explanation="A scheduler was killed while it started: this configuration needs more"
                " host memory than there is. Offload less to the CPU (--hicache-size), or load"
                " fewer ranks at a time.",
            ),
            Variant(
                "",
                Action.PRUNE,
                explanation="The host has less memory than this configuration asks for beside the"
                " GPUs'. Lower --hicache-size or --hicache-ratio, or give the container more.",
                line=r"Not enough host memory",
            ),
        ),
        spread=Spread(larger=("hicache_size", "hicache_ratio", "cpu_offload_gb")),
    ),
    Mode(
        "scheduler-died-silently",
        "A server process died without a word (a crash in native code, or a kill). Look for"
        " a core dump, and into dmesg.",
        Action.RETRY,
        _LIFE,
        (
            Sign(
                r"(?:crashed with exit code|[Ee]xit code:?) \(?-(?:4|5|6|11)\b",
                weight=Weight.SYMPTOM,
            ),
            Sign(
                r"terminate called after throwing|terminate called without",
                weight=Weight.SYMPTOM,
            ),
            Sign(r"Segmentation fault", weight=Weight.SYMPTOM),
            Sign(
                r"Fatal Python error: (?:Aborted|Segmentation fault|Illegal)",
                weight=Weight.SYMPTOM,
            ),
        ),
        Remedy("clean up and start again", cleanup=(Cleanup.GPUS, Cleanup.PORT)),
        exit_codes=(-4, -5, -6, -9, -11, 132, 133, 134, 137, 139),
        stalls=(Phase.SERVING,),
    ),
    Mode(
        "scheduler-child-died",
        "A scheduler died and the log doesn't say why; what it holds are the other processes'"
        " echoes. Look at the log of the rank that they name.",
        Action.STOP,
        _LIFE,
        (
            Sign(r"Received sigquit from a child proces", weight=Weight.ECHO),
            Sign(
                r"SIGQUIT received\. signum|Triggering SIGQUIT for cleanup",
                weight=Weight.ECHO,
            ),
            Sign(
                r"reached monitoredBarrier, but received errors|monitoredBarrier",
                weight=Weight.ECHO,
            ),
            Sign(r"Rank \d+ scheduler died during initialization", weight=Weight.ECHO),
            Sign(r"Rank \d+ scheduler is dead", weight=Weight.ECHO),
            Sign(r"ncclRemoteError", weight=Weight.ECHO),
            Sign(r"crashed with exit code \d+", weight=Weight.ECHO),
            Sign(
                r"Scheduler hit an exception|hit an exception: Traceback",
                weight=Weight.ECHO,
            ),
            Sign(
                r"Connection (?:closed|reset) by (?:remote )?peer|remote process exited",
                weight=Weight.ECHO,
                near=r"\[rank\d+\]|NCCL|Gloo|gloo",
            ),
        ),
        vague=True,
    ),
    Mode(
        "gpu-memory-imbalance-self",
        "SGLang's memory balance check counts this server's own memory against its draft worker."
        " Set SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0.",
        Action.RETRY,
        (Phase.GRAPH_CAPTURE, Phase.DISTRIBUTED),
        (Sign(_UNBALANCED, near=_DRAFT),),
        Remedy(_CHECK_OFF, env={"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}, alters=True),
        variants=(
            # A ValueError until SGLang 0.5.6. Later versions copy the old variable's value to the
            # new one, where 1 keeps the check on, so that only one of the two may be set.
            Variant(
                "",
                Action.RETRY,
                Remedy(_CHECK_OFF, env={"SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1"}, alters=True),
                "SGLang's memory balance check counts this server's own memory against its draft"
                " worker. Set SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=1.",
                line=r"ValueError: The memory capacity",
            ),
        ),
    ),
    Mode(
        "gpu-memory-imbalance",
        "Some GPUs hold less free memory than others, and the log doesn't say how much. Check who"
        " holds them, and that CUDA_VISIBLE_DEVICES reaches every worker.",
        Action.STOP,
        (Phase.DISTRIBUTED, Phase.WEIGHTS),
        (Sign(_UNBALANCED),),
        variants=(
            Variant(
                r"(?:Error|Exception): The memory capacity is unbalanced.*_memory=\d",
                Action.RETRY,
                Remedy("free the GPUs", cleanup=(Cleanup.GPUS,)),
                "Another process holds memory on some of the GPUs. End it, if it is yours.",
            ),
        ),
        check="the holders are ours, or the host is dedicated",
    ),
    Mode(
        "port-in-use-http",
        "The HTTP port is taken, often by a server that was left running. End that, or take"
        " another port.",
        Action.RETRY,
        (Phase.START, Phase.WARMUP),
        (
            Sign(r"error while attempting to bind on address"),
            Sign(
                r"\[Errno 98\] [Aa]ddress already in use|OSError: .*Address already in use",
                unless=r"zmq|tcp://|TCPStore",
            ),
            Sign(
                r"(?:HTTP |http )?[Pp]ort \d+ is (?:already )?(?:in use|occupied|not available)",
                unless=r"_port\b|Waiting",
                raised=True,
            ),
        ),
        Remedy("take another port", cleanup=(Cleanup.PORT,), another_port=True),
    ),
    Mode(
        "port-in-use-dist",
        "A port that the ranks talk over is taken. End what holds it, or take another port.",
        Action.RETRY,
        (Phase.START, Phase.DISTRIBUTED),
        (
            Sign(r"\w+_port at \d+ is not available"),
            Sign(r"ZMQError: Address already in use|Address already in use \(addr="),
            Sign(
                r"EADDRINUSE|server socket has failed to (?:listen|bind)"
                r"|errno: ?-?98|DistNetworkError.*address already in use",
            ),
            Sign(r"EADDRINUSE|server socket has failed to (?:listen|bind)|errno: ?-?98"),
        ),
        Remedy("take other ports", cleanup=(Cleanup.PORT,), another_port=True),
    ),
)
