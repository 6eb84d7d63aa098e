"""From the values of the axes to the server configuration that they mean."""

from collections.abc import Mapping

from settings.axes import Scalar
from settings.sweep import Speculative, Sweep
from tasks.domain.configuration import ServerConfiguration, Value
from tasks.domain.sglang import NCCL_CHANNELS, SPECULATIVE_FLAGS

_ONE_FLAG = "cuda_graph_max_bs"


def configure(sweep: Sweep, choice: Mapping[str, Scalar]) -> ServerConfiguration:
    """Lay one value of each axis over what all servers of the sweep have in common.

    An axis of a single flag or variable wins over a named one that sets several, in whichever
    order they stand.
    """
    stack = choice.get("stack")
    return ServerConfiguration(
        sweep.server.model_path,
        _args(sweep, choice),
        _env(sweep, choice),
        None if stack is None else str(stack),
    )


def _args(sweep: Sweep, choice: Mapping[str, Scalar]) -> dict[str, Value]:
    args: dict[str, Value] = dict(sweep.server.args)
    steps = choice.get("speculative_steps")
    if steps:
        args = _speculative(args, sweep.speculative, int(steps))
    for axis, value in choice.items():
        if axis == _ONE_FLAG or axis.startswith("args."):
            args[axis.removeprefix("args.")] = value
    off = steps == 0  # None where the sweep doesn't vary it
    return {
        name: value
        for name, value in args.items()
        if value is not None
        and value is not False
        and not (off and name.startswith("speculative_"))
    }


def _env(sweep: Sweep, choice: Mapping[str, Scalar]) -> dict[str, str]:
    """The variables; one whose value is null is unset."""
    env = dict(sweep.server.env)
    if "nccl_channels" in choice:
        env.update(dict.fromkeys(NCCL_CHANNELS, str(choice["nccl_channels"])))
    for axis, value in choice.items():
        if axis.startswith("env."):
            name = axis.removeprefix("env.")
            env.pop(name, None)
            if value is not None:
                env[name] = str(value)
    return env


def _speculative(args: Mapping[str, Value], how: Speculative, steps: int) -> dict[str, Value]:
    """Set algorithm, draft model, steps, top-k and draft tokens together.

    With top-k 1 the draft is a chain, so steps + 1 tokens are verified; a tree of width k has
    k candidates a step beside the root.
    """
    rest = {name: value for name, value in args.items() if name not in SPECULATIVE_FLAGS}
    draft = {"speculative_draft_model_path": how.draft_model_path} if how.draft_model_path else {}
    return {
        **rest,
        "speculative_algorithm": how.algorithm,
        **draft,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": how.eagle_topk,
        "speculative_num_draft_tokens": steps * how.eagle_topk + 1,
    }
