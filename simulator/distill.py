"""Distil the command line of an SGLang version into facts: names, arity, types, choices.

    python -m simulator.distill --help-text help.txt --server-info server_info.json > flags.json

`help.txt` is what `python -m sglang.launch_server --help` printed, `server_info.json` what
`GET /server_info` of the same version returned (it knows the default of every argument, and a
default knows its type). No sentence of the help text is kept.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Whole numbers and fractions whose default is None, so that no default tells their type.
WHOLE = re.compile(
    r"^(context_length|max_running_requests|max_queued_requests|max_total_tokens|tp|.*_port"
    r"|chunked_prefill_size|page_size|random_seed|.*_max_bs|.*_num_steps|.*_eagle_topk"
    r"|.*_num_draft_tokens|pp_max_micro_batch_size|prefill_max_requests|max_lora_rank"
    r"|max_loaded_loras|moe_dense_tp_size|max_mamba_cache_size|kt_cpuinfer|kt_num_gpu_experts"
    r"|kt_max_deferred_experts_per_token|dist_timeout|eplb_rebalance_layers_per_chunk|cuda_graph_bs"
    r"|disaggregation_decode_tp|disaggregation_decode_dp|triton_attention_split_tile_size"
    r"|numa_node|debug_tensor_dump_layers|prefill_delayer_forward_passes_buckets"
    r"|piecewise_cuda_graph_tokens|.*_max_bs_(decode|prefill)|cuda_graph_bs_(decode|prefill))$"
)
FRACTION = re.compile(
    r"^(mem_fraction_static|soft_watchdog_timeout|bucket_.*|prefill_delayer_wait_seconds_buckets"
    r"|prefill_delayer_token_usage_low_watermark)$"
)
# What a running server reports beyond its arguments, and what only that one machine could know.
NOT_ARGUMENTS = {
    "status",
    "max_total_num_tokens",
    "max_req_input_len",
    "internal_states",
    "version",
    "launch_command",
    "startup_time",
    "kv_events",
    "frontend",
}
MACHINE = {
    "model_path": None,
    "tokenizer_path": None,
    "served_model_name": None,
    "host": "127.0.0.1",
    "port": 30000,
    "device": "cuda",
    "random_seed": None,
    "attention_backend": None,
    "sampling_backend": "flashinfer",
    "mem_fraction_static": None,
    "max_running_requests": None,
    "max_total_tokens": None,
    "chunked_prefill_size": None,
    "cuda_graph_max_bs": None,
    "cuda_graph_bs": None,
    "disable_cuda_graph": False,
    "disable_chunked_prefix_cache": False,
    "enable_metrics": False,
    "log_requests": False,
    "skip_server_warmup": False,
}


def synopses(help_text: str) -> Iterator[str]:
    """Yield the synopsis of each option, without its description."""
    options = help_text[help_text.index("\noptions:") :]
    for line in options.splitlines():
        if line.startswith("  -"):
            yield re.split(r"\s{2,}", line.strip())[0]


def type_of(dest: str, default: object) -> str:
    sample = default[0] if isinstance(default, list) and default else default
    if isinstance(sample, bool):
        return "str"
    if isinstance(sample, int) or WHOLE.match(dest):
        return "int"
    if isinstance(sample, float) or FRACTION.match(dest):
        return "float"
    return "str"


def arity(operand: str) -> str:
    """Return argparse's `nargs` for a synopsis' operand: `1`, `?`, `*`, `+`, or `0` for none."""
    if not operand:
        return "0"
    if operand.startswith("["):
        return "*" if operand.endswith("...]") else "?"
    return "+" if operand.endswith("...]") else "1"


def fact(synopsis: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """Return one option's names, arity, type, choices and the argument it sets."""
    names = re.findall(r"--[\w-]+", re.sub(r"\{.*?\}", "", synopsis))
    operand = re.sub(r"^.*--[\w-]+ ?", "", synopsis)
    dests = [name[2:].replace("-", "_") for name in names]
    sets = next((dest for dest in dests if dest in defaults), dests[0])
    nargs = arity(operand)
    found: dict[str, Any] = {"names": names, "nargs": nargs, "sets": sets}
    if nargs == "0":
        return found
    found["type"] = type_of(sets, defaults.get(sets))
    if choices := re.search(r"\{(.*?)\}", operand):
        found["choices"] = choices.group(1).split(",")
        if found["type"] == "int":
            found["choices"] = [int(choice) for choice in found["choices"]]
    return found


def distil(help_text: str, server_info: dict[str, Any]) -> dict[str, Any]:
    """Return `{prog, version, defaults, flags}` of one SGLang version."""
    usage = re.match(r"usage: (.+?) \[-h\]", help_text)
    defaults = {k: v for k, v in server_info.items() if k not in NOT_ARGUMENTS}
    defaults |= {k: v for k, v in MACHINE.items() if k in defaults}
    return {
        "prog": usage.group(1) if usage else "launch_server.py",
        "version": server_info["version"],
        "defaults": defaults,
        "flags": [fact(s, defaults) for s in synopses(help_text) if not s.startswith("-h")],
    }


def render(facts: dict[str, Any]) -> str:
    """Write the facts as JSON with one flag, one default a line, so that versions can be diffed."""
    flags = ",\n".join("  " + json.dumps(flag) for flag in facts["flags"])
    pairs = facts["defaults"].items()
    defaults = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in pairs)
    head = f'"prog": {json.dumps(facts["prog"])},\n"version": {json.dumps(facts["version"])},\n'
    return f'{{{head}"defaults": {{\n{defaults}\n}},\n"flags": [\n{flags}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(prog="simulator.distill", description=__doc__)
    parser.add_argument("--help-text", type=Path, required=True)
    parser.add_argument("--server-info", type=Path, required=True)
    asked = parser.parse_args()
    facts = distil(asked.help_text.read_text(), json.loads(asked.server_info.read_text()))
    sys.stdout.write(render(facts))


if __name__ == "__main__":
    main()
