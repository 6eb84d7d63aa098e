"""Ask a server, over HTTP, what only it can tell."""

from typing import Any

import httpx

from tasks.domain.answer import Answer
from tasks.domain.sglang import GENERATE, HEALTH_GENERATE, MODEL_INFO, SERVER_INFO


async def generates(base_url: str, timeout_s: float) -> bool:
    """Whether the server truly generates: its own probe, or one token where it has none."""
    try:
        async with httpx.AsyncClient(timeout=timeout_s) as client:
            answer = await client.get(base_url + HEALTH_GENERATE)
            if answer.status_code == httpx.codes.NOT_FOUND:
                answer = await client.post(base_url + GENERATE, json=_one_token())
            return answer.is_success
    except httpx.HTTPError:
        return False


def _one_token() -> dict[str, object]:
    return {"text": "Hello", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}


async def complete(base_url: str, prompt: str, max_tokens: int, timeout_s: float) -> Answer:
    """Generate greedily from one prompt; a failure is an answer with an error."""
    body = {"text": prompt, "sampling_params": {"max_new_tokens": max_tokens, "temperature": 0}}
    try:
        async with httpx.AsyncClient(timeout=timeout_s) as client:
            answer = await client.post(base_url + GENERATE, json=body)
            if not answer.is_success:
                return Answer(prompt, "", error=f"HTTP {answer.status_code}: {answer.text[:200]}")
            return _answer(prompt, answer.json())
    except (httpx.HTTPError, ValueError) as error:
        return Answer(prompt, "", error=f"{type(error).__name__}: {error}")


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
    async with httpx.AsyncClient(timeout=timeout_s) as client:
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
