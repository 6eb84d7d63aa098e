"""The bytes of a request, per backend."""

from collections.abc import Sequence

import orjson

from tasks.load.capture.follow import GAP
from tasks.load.target import PATHS, Target

Prompt = str | list[int]
"""Text, or token ids."""

_ANSWER = GAP.decode()


def encode_request(
    target: Target, prompt: Prompt, output_len: int, before: Sequence[str] = ()
) -> bytes:
    """Build a whole HTTP request that streams exactly `output_len` tokens, greedily.

    End-of-sequence is ignored, so that every configuration does the same work. `before` are the
    earlier turns of the conversation; their answers are left out, and so is the length of it all:
    see `tasks.load.capture.follow`.
    """
    body = orjson.dumps({**_body(target, prompt, output_len, before), **target.extra})
    headers = {
        **target.headers,
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
    }
    if not before:
        headers["Content-Length"] = str(len(body))
    lines = [f"POST {target.path(PATHS[target.backend])} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _body(
    target: Target, prompt: Prompt, output_len: int, before: Sequence[str]
) -> dict[str, object]:
    if before and target.backend != "openai-chat":
        prompt = _dialogue(before, str(prompt))
    if target.backend == "sglang":
        sampling = {"temperature": 0.0, "max_new_tokens": output_len, "ignore_eos": True}
        key = "text" if isinstance(prompt, str) else "input_ids"
        return {key: prompt, "sampling_params": sampling, "stream": True}
    if target.backend == "openai":
        asked: dict[str, object] = {"prompt": prompt}
    else:
        asked = {"messages": _messages(before, prompt)}
    return {
        "model": target.model,
        **asked,
        "temperature": 0.0,
        "max_tokens": output_len,
        "ignore_eos": True,
        "stream": True,
        # With a count in every chunk the tokens of speculative decoding are exact; a server that
        # doesn't know the second option leaves the count out, and the last chunk's is used.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _messages(before: Sequence[str], prompt: Prompt) -> list[dict[str, object]]:
    """A conversation as OpenAI's chat has it."""
    said: list[dict[str, object]] = []
    for turn in before:
        said.append({"role": "user", "content": turn.replace(_ANSWER, "")})
        said.append({"role": "assistant", "content": _ANSWER})
    return [*said, {"role": "user", "content": prompt}]


def _dialogue(before: Sequence[str], prompt: str) -> str:
    """A conversation as text, for interfaces that know no roles: a paragraph a turn."""
    said = (f"{turn.replace(_ANSWER, '')}\n\n{_ANSWER}\n\n" for turn in before)
    return "".join(said) + prompt.replace(_ANSWER, "")
