"""The bytes of a request, per backend."""

import orjson

from tasks.load.target import PATHS, Target

Prompt = str | list[int]
"""Text, or token ids."""


def encode_request(target: Target, prompt: Prompt, output_len: int) -> bytes:
    """Build a whole HTTP request that streams exactly `output_len` tokens, greedily.

    End-of-sequence is ignored, so that every configuration does the same work.
    """
    body = orjson.dumps({**_body(target, prompt, output_len), **target.extra})
    headers = {
        **target.headers,
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Content-Length": str(len(body)),
    }
    lines = [f"POST {target.path(PATHS[target.backend])} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _body(target: Target, prompt: Prompt, output_len: int) -> dict[str, object]:
    if target.backend == "sglang":
        sampling = {"temperature": 0.0, "max_new_tokens": output_len, "ignore_eos": True}
        key = "text" if isinstance(prompt, str) else "input_ids"
        return {key: prompt, "sampling_params": sampling, "stream": True}
    if target.backend == "openai":
        asked: dict[str, object] = {"prompt": prompt}
    else:
        asked = {"messages": [{"role": "user", "content": prompt}]}
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
