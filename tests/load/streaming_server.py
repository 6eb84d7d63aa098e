"""A small real HTTP server that streams tokens, logs when, and can misbehave on purpose.

It speaks the three dialects of the load client. What goes wrong, and at which request, is said
beforehand: `Behaviour(faults={3: "cut"})` cuts the fourth generation's stream in its middle.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True)
class Behaviour:
    """How the server answers; times in seconds, `faults` by the generation's number."""

    ttft_s: float = 0.005
    itl_s: float = 0.001
    tokens_per_chunk: int = 1
    fewer_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: Mapping[str, object] | None = None
    avg_accept_length: float | None = None
    verify_ct: bool = False
    usage: bool = True
    continuous_usage: bool = False
    faults: Mapping[int, str] = field(default_factory=dict)
    close_after_answer: bool = False
    flush_status: int = 200


@dataclass
class Generation:
    """What the server knows of one request; times are ns of CLOCK_MONOTONIC."""

    number: int
    path: str
    body: Mapping[str, object]
    headers: Mapping[str, str]
    read_ns: int
    connection: int
    chunk_ns: list[int] = field(default_factory=list)


class StreamingServer:
    """Serves on a free port of the loopback interface while its context is entered."""

    def __init__(
        self,
        behaviour: Behaviour = Behaviour(),
        address: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.behaviour = behaviour
        self.address = address
        self.tls = tls
        self.generations: list[Generation] = []
        self.flushes = 0
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = asyncio.Event()

    async def __aenter__(self) -> "StreamingServer":
        self._server = await asyncio.start_server(self._serve, self.address, 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    @property
    def url(self) -> str:
        name = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.tls else 'http'}://{name}:{self.port}"

    async def until(self, count: int) -> None:
        """Wait until that many generations were asked for."""
        while len(self.generations) < count:
            self._asked.clear()
            await self._asked.wait()

    async def die(self) -> None:
        """Listen no more and reset every connection, as a killed process does."""
        self._server.close()
        for writer in list(self._writers):
            reset(writer)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        gone = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*gone):
            while await self._answer(reader, writer, connection):
                pass
        self._writers.discard(writer)
        self._tasks.discard(task)
        writer.close()

    async def _answer(self, reader, writer, connection: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split()
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "POST" and path in DIALECTS:
            generation = Generation(
                len(self.generations),
                path,
                json.loads(body),
                headers,
                time.monotonic_ns(),
                connection,
            )
            self.generations.append(generation)
            self._asked.set()
            return await self._generate(generation, writer)
        await self._describe(path, writer)
        return True

    async def _describe(self, path: str, writer: asyncio.StreamWriter) -> None:
        if path == "/flush_cache":
            self.flushes += 1
            await whole(writer, self.behaviour.flush_status, b"Cache flushed.")
        elif path == "/server_info":
            state = {"avg_spec_accept_length": self.behaviour.avg_accept_length}
            info = {"model_path": "/no/such/model", "internal_states": [state]}
            await whole(writer, 200, json.dumps(info).encode())
        else:
            await whole(writer, 404, b'{"detail":"Not Found"}')

    async def _generate(self, generation: Generation, writer: asyncio.StreamWriter) -> bool:
        fault = self.behaviour.faults.get(generation.number, "")
        if fault == "500":
            await whole(writer, 500, b'{"error":{"message":"CUDA out of memory"}}')
            return True
        if fault == "400":
            await whole(writer, 400, b'{"object":"error","message":"the prompt is too long"}')
            return True
        if fault == "whole":
            await whole(writer, 200, b'{"text":"one piece","meta_info":{"completion_tokens":3}}')
            return True
        if fault == "not http":
            writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
            return False
        if fault == "close at once":
            return False
        writer.write(HEAD)
        await self._stream(generation, writer, fault)
        return not (self.behaviour.close_after_answer or fault in ("cut", "reset"))

    async def _stream(self, generation, writer: asyncio.StreamWriter, fault: str) -> None:
        dialect = DIALECTS[generation.path]
        asked = dialect.asked(generation.body) - self.behaviour.fewer_tokens
        start, sent = asyncio.get_running_loop().time(), 0
        while sent < asked:
            wait_s = self.behaviour.ttft_s + len(generation.chunk_ns) * self.behaviour.itl_s
            await sleep_until(start + wait_s)
            step = self.behaviour.tokens_per_chunk if sent else 1
            sent = min(asked, sent + step)
            if sent > asked // 2 and fault in FAULTS_IN_THE_MIDDLE:
                await FAULTS_IN_THE_MIDDLE[fault](writer)
                return
            generation.chunk_ns.append(time.monotonic_ns())
            await chunk(writer, dialect.event(self.behaviour, sent, step, sent == asked))
        await chunk(writer, dialect.tail(self.behaviour, sent) + b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class SglangDialect:
    """POST /generate: cumulative text, and a count in every event."""

    def asked(self, body) -> int:
        return body["sampling_params"]["max_new_tokens"]

    def event(self, behaviour: Behaviour, sent: int, step: int, last: bool) -> bytes:
        reason = behaviour.finish_reason or {"type": "length", "length": sent}
        meta = {
            "finish_reason": reason if last else None,
            "prompt_tokens": 7,
            "completion_tokens": sent,
            "cached_tokens": behaviour.cached_tokens,
        }
        if behaviour.verify_ct and last:
            meta["spec_verify_ct"] = -(-sent // behaviour.tokens_per_chunk)
        return sse({"text": " fox" * sent, "meta_info": meta})

    def tail(self, behaviour: Behaviour, sent: int) -> bytes:
        return b""


class OpenaiDialect:
    """POST /v1/completions and /v1/chat/completions: deltas, and the count at the end."""

    def __init__(self, chat: bool) -> None:
        self.chat = chat

    def asked(self, body) -> int:
        return body["max_tokens"]

    def event(self, behaviour: Behaviour, sent: int, step: int, last: bool) -> bytes:
        text = " fox" * step
        key = {"delta": {"content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **key, "finish_reason": "length" if last else None}
        usage = self.counts(sent) if behaviour.continuous_usage else None
        role = b""
        if self.chat and sent == 1:
            role = sse({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        return role + sse({"choices": [choice], "usage": usage})

    def tail(self, behaviour: Behaviour, sent: int) -> bytes:
        return sse({"choices": [], "usage": self.counts(sent)}) if behaviour.usage else b""

    def counts(self, sent: int) -> dict[str, int]:
        return {"prompt_tokens": 7, "completion_tokens": sent, "total_tokens": 7 + sent}


DIALECTS = {
    "/generate": SglangDialect(),
    "/v1/completions": OpenaiDialect(chat=False),
    "/v1/chat/completions": OpenaiDialect(chat=True),
}


def sse(event: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


async def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


async def whole(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} .\r\ncontent-type: application/json\r\n"
    writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _cut(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _reset(writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def _stall(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def _malformed(writer: asyncio.StreamWriter) -> None:
    await chunk(writer, b"data: {not json\n\n")
    writer.write(b"0\r\n\r\n")


async def _error_event(writer: asyncio.StreamWriter) -> None:
    await chunk(writer, sse({"error": {"message": "input is too long"}}))
    writer.write(b"0\r\n\r\n")


async def _unfinished(writer: asyncio.StreamWriter) -> None:
    writer.write(b"0\r\n\r\n")


FAULTS_IN_THE_MIDDLE = {
    "cut": _cut,
    "reset": _reset,
    "stall": _stall,
    "malformed": _malformed,
    "error event": _error_event,
    "unfinished": _unfinished,
}


async def sleep_until(moment_s: float) -> None:
    """Sleep until a time of the event loop; the schedule doesn't drift with late wake-ups."""
    await asyncio.sleep(max(0.0, moment_s - asyncio.get_running_loop().time()))
