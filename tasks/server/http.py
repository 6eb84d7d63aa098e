"""Ask a server, over HTTP, what only it can tell."""

from typing import Any

import httpx

from tasks.domain.answer import Answer
from tasks.domain.sglang import GENERATE, MODEL_INFO, SERVER_INFO


async def generates(base_url: str, timeout_s: float) -> bool:
    """Whether the server truly generates: one token, asked for as any client would.

    Its own probes have answered 200 before it could, and while something else ran.
    """
    return not (await complete(base_url, "Hello", 1, timeout_s)).error


async def complete(base_url: str, prompt: str, max_tokens: int, timeout_s: float) -> Answer:
    """Generate greedily from one prompt; a failure is an answer with an error."""
    body = {"text": prompt, "sampling_params": {"max_new_tokens": max_tokens, "temperature": 0}}
    try:
        async with _client(timeout_s) as client:
            answer = await client.post(base_url + GENERATE, json=body)
            if not answer.is_success:
                return Answer(prompt, "", error=f"HTTP {answer.status_code}: {answer.text[:200]}")
            return _answer(prompt, answer.json())
    except (httpx.HTTPError, ValueError) as error:
        return Answer(prompt, "", error=f"{type(error).__name__}: {error}")


def _client(timeout_s: float) -> httpx.AsyncClient:
    """A client that goes straight to the server, whatever proxy the environment names."""
    return httpx.AsyncClient(timeout=timeout_s, trust_env=False)


def _answer(prompt: str, content: object) -> Answer:
    """Read what /generate answers. Raises `ValueError` where it isn't of that form."""
    match content:
        case {"text": str(text), **rest}:
            tokens = rest.get("output_ids")
            return Answer(prompt, text, tuple(tokens) if isinstance(tokens, list) else ())
    raise ValueError("the answer has no text")


async def facts(base_url: str, timeout_s: float = 30.0) -> dict[str, Any]:
    """The server's own account of itself (server_info over model_info); empty where it has none."""
    found: dict[str, Any] = {}
    async with _client(timeout_s) as client:
        for paths in (MODEL_INFO, SERVER_INFO):
            for path in paths:
                try:
                    answer = await client.get(base_url + path)
                    if answer.is_success:
                        found |= answer.json()
                        break
                except (httpx.HTTPError, ValueError):
                    continue
    return found
