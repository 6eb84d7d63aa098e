"""What of SGLang changes between its versions: flag names, endpoints, variables.

Seen in 0.5.9 and 0.5.23. Each table lists the names that one thing has had; whoever needs the
thing takes the first that the target knows.
"""

from collections.abc import Mapping

RENAMED_FLAGS: dict[str, tuple[str, ...]] = {
    "cuda_graph_max_bs": ("cuda_graph_max_bs_decode",),
    "tp": ("tp_size", "tensor_parallel_size"),
    "dp": ("dp_size", "data_parallel_size"),
    "ep": ("ep_size", "expert_parallel_size"),
    "pp": ("pp_size", "pipeline_parallel_size"),
}
"""Flag as people write it -> what it is called elsewhere; 0.5.23 split cuda_graph_max_bs."""

ATTENTION_BACKENDS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "fa3": ((8, 0), (9, 0)),
    "trtllm_mla": ((10, 0), (12, 9)),
    "trtllm_mha": ((10, 0), (10, 9)),
}
"""Attention backend -> the least and the greatest compute capability that it runs on.

From `server_args.py` and `attention_registry.py` of 0.5.9; others run on what they find."""

ATTENTION_FLAGS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")

GENERATE = "/generate"
FLUSH_CACHE = "/flush_cache"
SERVER_INFO = ("/server_info", "/get_server_info")
MODEL_INFO = ("/model_info", "/get_model_info")

BENCH_SERVING = "sglang.bench_serving"
RUST_CLIENT = "sglang.benchmark.rust_client"
BENCH_ENGINES = {"sglang": BENCH_SERVING, "sglang-rust": RUST_CLIENT}
BENCH_SERVING_BACKENDS = {
    "sglang": "sglang",
    "openai": "sglang-oai",
    "openai-chat": "sglang-oai-chat",
}
"""SGLang's own clients (the one in Rust came after 0.5.9), and what they call the interfaces."""

SPECULATIVE_FLAGS = (
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)

WORKER_PREFIX = "sglang::"
"""How the names of a server's own processes begin, such as `sglang::scheduler_TP0`."""

NODES = "nnodes"
NODE_RANK = "node_rank"
NODE_ADDRESS = "dist_init_addr"
"""Flags of a server over several hosts: how many, which of them this is, where they meet."""

PORTS_OF_NODES = 8
"""How many ports in a row the nodes may use, from the one where they meet (`PortArgs`)."""

NCCL_CHANNELS = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")


def gpus_of(args: Mapping[str, object]) -> int:
    """Count the GPUs that a server takes: tensor x pipeline parallel ranks, times its replicas.

    With data-parallel attention (`enable_dp_attention`) the ranks of one group share the work, so
    `dp` adds no GPU; without it each of the `dp` replicas has GPUs of its own. From the scheduler
    launch of 0.5.9 (`data_parallel_controller.py`); the flags may bear any of their names.
    """
    replicas = 1 if args.get("enable_dp_attention") else _size(args, "dp")
    return _size(args, "tp") * _size(args, "pp") * replicas


def _size(args: Mapping[str, object], name: str) -> int:
    """A size among the flags; 1 where it isn't given."""
    given = (args.get(each) for each in (name, *RENAMED_FLAGS[name]))
    return next((int(value) for value in given if isinstance(value, int | float | str)), 1)


def resolve_flag(name: str, known: frozenset[str]) -> str:
    """The name under which the target knows a flag; the name itself where nothing is known.

    `known` are the target's flags, underscored; empty when they could not be read.
    """
    if not known or name in known:
        return name
    return next((other for other in RENAMED_FLAGS.get(name, ()) if other in known), name)
