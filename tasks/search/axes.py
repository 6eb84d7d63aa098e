"""From the values of the axes to the server configuration that they mean."""

from collections.abc import Mapping

from settings.sweep import Scalar, Speculative, Sweep
from tasks.domain.configuration import ServerConfiguration, Value
from tasks.domain.sglang import NCCL_CHANNELS, SPECULATIVE_FLAGS


def configure(sweep: Sweep, choice: Mapping[str, Scalar]) -> ServerConfiguration:
    """Lay one value of each axis over what all servers of the sweep have in common."""
    args: dict[str, Value] = dict(sweep.server.args)
    env = dict(sweep.server.env)
    stack: str | None = None
    for axis, value in choice.items():
        if axis == "stack":
            stack = str(value)
        elif axis == "nccl_channels":
            env.update(dict.fromkeys(NCCL_CHANNELS, str(value)))
        elif axis == "speculative_steps":
            args = _speculative(args, sweep.speculative, int(value or 0))
        elif axis.startswith("env."):
            _set_variable(env, axis.removeprefix("env."), value)
        else:
            args[axis.removeprefix("args.")] = value
    kept = {name: value for name, value in args.items() if value is not None and value is not False}
    return ServerConfiguration(sweep.server.model_path, kept, env, stack)


def _set_variable(env: dict[str, str], name: str, value: Scalar) -> None:
    """A variable whose value is null is unset."""
    env.pop(name, None)
    if value is not None:
        env[name] = str(value)


def _speculative(args: Mapping[str, Value], how: Speculative, steps: int) -> dict[str, Value]:
    """Set algorithm, draft model, steps, top-k and draft tokens together; 0 steps is off.

    With top-k 1 the draft is a chain, so steps + 1 tokens are verified; a tree of width k has
    k candidates a step beside the root.
    """
    rest = {name: value for name, value in args.items() if name not in SPECULATIVE_FLAGS}
    if steps == 0:
        return rest
    draft = {"speculative_draft_model_path": how.draft_model_path} if how.draft_model_path else {}
    return {
        **rest,
        "speculative_algorithm": how.algorithm,
        **draft,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": how.eagle_topk,
        "speculative_num_draft_tokens": steps * how.eagle_topk + 1,
    }
