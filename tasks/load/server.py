"""What the load asks of a server besides the load itself."""

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tasks.domain.sglang import FLUSH_CACHE, SERVER_INFO
from tasks.load.datasets import DEFAULT_VOCAB_SIZE
from tasks.load.target import Target


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `status` is 0 where none came, and `body` then says why."""

    status: int
    body: bytes

    def mapping(self) -> Mapping[str, Any]:
        """The body as a JSON object; empty where it isn't one."""
        try:
            found = orjson.loads(self.body) if self.status == 200 else {}
        except orjson.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}


async def flush_cache(target: Target, timeout_s: float = 30.0) -> bool:
    """Empty the server's prefix cache; False where it can't or has no such thing.

    SGLang refuses while requests run, as they may just after a level was cut short: ask again.
    """
    for wait_s in (0.0, 0.2, 1.0):
        await asyncio.sleep(wait_s)
        answer = await _ask(target, "POST", FLUSH_CACHE, timeout_s)
        if answer.status in (0, 200, 404, 405):
            break
    return answer.status == 200


async def server_info(target: Target, timeout_s: float = 30.0) -> Mapping[str, Any]:
    """Ask for SGLang's description of itself, by its new or its old name; empty without one."""
    for path in SERVER_INFO:
        answer = await _ask(target, "GET", path, timeout_s)
        if answer.status == 200:
            return answer.mapping()
    return {}


async def vocabulary_size(target: Target) -> int:
    """Find the size of the model's vocabulary, where its folder is on this machine; else 1000."""
    if target.vocab_size is not None:
        return target.vocab_size
    info = await server_info(target)
    path = info.get("model_path")
    return _vocab_size_in(Path(path)) if isinstance(path, str) else DEFAULT_VOCAB_SIZE


def accept_length(info: Mapping[str, Any]) -> float | None:
    """The accept length that the server reports since its cache was flushed, over all its ranks.

    Tokens per verification step, the bonus token included; None without speculative decoding.
    """
    states = [state for state in info.get("internal_states") or () if isinstance(state, dict)]
    found = [state.get("avg_spec_accept_length") for state in states]
    values = [float(value) for value in found if isinstance(value, int | float) and value > 0]
    return sum(values) / len(values) if values else None


def _vocab_size_in(folder: Path) -> int:
    try:
        return read_vocab_size((folder / "config.json").read_bytes()) or DEFAULT_VOCAB_SIZE
    except OSError:
        return DEFAULT_VOCAB_SIZE


def read_vocab_size(config: bytes) -> int | None:
    """Read the vocabulary's size in a model's config.json; None where it doesn't say."""
    try:
        found = json.loads(config)
        size = found.get("vocab_size") or (found.get("text_config") or {}).get("vocab_size")
    except (ValueError, AttributeError):
        return None
    return size if isinstance(size, int) else None


async def _ask(target: Target, method: str, path: str, timeout_s: float) -> Answer:
    return await asyncio.to_thread(_ask_now, target, method, path, timeout_s)


def _ask_now(target: Target, method: str, path: str, timeout_s: float) -> Answer:
    speak = http.client.HTTPSConnection if target.tls else http.client.HTTPConnection
    connection = speak(target.host, target.port, timeout=timeout_s)
    try:
        connection.request(method, target.path(path), headers=target.headers)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, str(error).encode())
    finally:
        connection.close()
