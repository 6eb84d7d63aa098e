"""SGLang's command line, rebuilt from distilled facts so that it refuses what the real one does.

The facts (`flags_data/<version>.json`) come from `simulator.distill`. argparse itself is built
from them: prefixes, ambiguity, bad choices and unknown flags fail with the real words, exit 2.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "flags_data"
DEFAULT_VERSION = "0.5.9"
DEFAULT_GRAPH_MAX_BS = 512
DEFAULT_CHUNK = 8192
TYPES: dict[str, Callable[[str], object]] = {"int": int, "float": float, "str": str}


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: `steps` drafts in a row, `draft_tokens` verified in one pass."""

    algorithm: str
    steps: int
    topk: int
    draft_tokens: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """The part of a launch that changes what the server does; None means "not given".

    `cuda_graph_max_bs` is the largest batch that runs as a graph, 0 where graphs are off.
    `arguments` is everything, under the names of SGLang's `ServerArgs` and in their order, with
    what SGLang fills in by itself; `given` names what was asked for.
    """

    model_path: str
    host: str
    port: int
    tp_size: int
    cuda_graph_max_bs: int
    mem_fraction_static: float | None
    max_running_requests: int | None
    max_total_tokens: int | None
    chunked_prefill_size: int
    context_length: int | None
    disable_radix_cache: bool
    speculation: Speculation | None
    arguments: Mapping[str, Any]
    given: frozenset[str]
    version: str


class ServerParser(argparse.ArgumentParser):
    """argparse's parser, with the flags of one SGLang version and the name it goes by."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(prog=facts["prog"], argument_default=argparse.SUPPRESS)
        for flag in facts["flags"]:
            self.add_argument(*flag["names"], **_options(flag))


def _options(flag: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for one distilled flag."""
    if flag["nargs"] == "0":
        negated = any(name.startswith("--no-") for name in flag["names"])
        return {"action": _Switch if negated else "store_true"}
    options: dict[str, Any] = {"type": TYPES[flag["type"]]}
    if flag["nargs"] != "1":
        options["nargs"] = flag["nargs"]
    if "choices" in flag:
        options["choices"] = flag["choices"]
    if "--model-path" in flag["names"]:
        options["required"] = True
    return options


class _Switch(argparse.Action):
    """`--x` sets true, `--no-x` false; both names are in the facts, so argparse adds none."""

    def __init__(self, option_strings: Sequence[str], dest: str, default: object) -> None:
        super().__init__(option_strings, dest, nargs=0, default=default)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, not (option_string or "").startswith("--no-"))


def load_facts(version: str) -> dict[str, Any]:
    """Read the distilled facts of one SGLang version; a version without facts is a ValueError."""
    path = DATA / f"{version}.json"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in DATA.glob("*.json")))
        raise ValueError(f"sglang_version {version!r} is not simulated: choose one of {known}")
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def parse(argv: Sequence[str], version: str = DEFAULT_VERSION) -> Configuration:
    """Parse launch flags as the real server would; exits 2 on a bad one and 0 on `--help`."""
    facts = load_facts(version)
    found = vars(ServerParser(facts).parse_args(argv))
    sets = {flag["names"][0][2:].replace("-", "_"): flag["sets"] for flag in facts["flags"]}
    given = {sets[dest]: value for dest, value in found.items()}
    arguments = facts["defaults"] | {k: v for k, v in given.items() if k in facts["defaults"]}
    return _configure(arguments, frozenset(given), version)


def _configure(arguments: dict[str, Any], given: frozenset[str], version: str) -> Configuration:
    for name in ("tokenizer_path", "served_model_name"):
        arguments[name] = arguments[name] or arguments["model_path"]
    speculation = _speculation(arguments)
    arguments["chunked_prefill_size"] = arguments["chunked_prefill_size"] or DEFAULT_CHUNK
    return Configuration(
        model_path=arguments["model_path"],
        host=arguments["host"],
        port=arguments["port"],
        tp_size=arguments["tp_size"],
        cuda_graph_max_bs=_graph_max_bs(arguments),
        mem_fraction_static=arguments["mem_fraction_static"],
        max_running_requests=arguments["max_running_requests"],
        max_total_tokens=arguments["max_total_tokens"],
        chunked_prefill_size=arguments["chunked_prefill_size"],
        context_length=arguments["context_length"],
        disable_radix_cache=arguments["disable_radix_cache"],
        speculation=speculation,
        arguments=arguments,
        given=given,
        version=version,
    )


def _graph_max_bs(arguments: dict[str, Any]) -> int:
    """Return the largest captured batch, and fill in the default where none was given."""
    key = "cuda_graph_max_bs" if "cuda_graph_max_bs" in arguments else "cuda_graph_max_bs_decode"
    arguments[key] = arguments[key] or DEFAULT_GRAPH_MAX_BS
    return 0 if _eager(arguments) else int(arguments[key])


def _eager(arguments: Mapping[str, Any]) -> bool:
    return bool(
        arguments["disable_cuda_graph"]
        or arguments.get("disable_decode_cuda_graph")
        or arguments.get("cuda_graph_backend_decode") == "disabled"
    )


def _speculation(arguments: dict[str, Any]) -> Speculation | None:
    """Fill in what SGLang fills in for itself: 3 steps, top-k 1, one draft token more."""
    algorithm = arguments["speculative_algorithm"]
    if algorithm is None:
        return None
    steps = arguments["speculative_num_steps"] or 3
    topk = arguments["speculative_eagle_topk"] or 1
    tokens = arguments["speculative_num_draft_tokens"] or steps + 1
    arguments |= {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }
    return Speculation(algorithm, steps, topk, tokens)


def server_args(arguments: Mapping[str, Any]) -> str:
    """Render `ServerArgs(...)` as the real server logs it."""
    return f"ServerArgs({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
