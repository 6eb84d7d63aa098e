"""Conversations: a turn's request holds the answers to the turns before it, so it is made late."""

from __future__ import annotations

import json
from typing import Any

from .stream import COMPLETE, Stream

GAP = b"\xee\x80\x80"
"""Stands in a request where an answer goes (U+E000, which is nobody's letter)."""

_HEAD_END = b"\r\n\r\n"


def next_turn(stream: Stream, following: Stream) -> bool:
    """Make the request that follows a stream; False if that one wasn't answered."""
    answer = answer_of(b"".join(stream.pieces)) if stream.ending == COMPLETE else None
    if answer is None:
        return False
    following.said = [*stream.said, answer]
    following.request = filled(following.request, following.said)
    return True


def turns_from(stream: Stream | None) -> int:
    """How many turns of a conversation are left, from this one on."""
    count = 0
    while stream is not None:
        count, stream = count + 1, stream.next
    return count


def filled(request: bytes, answers: list[str]) -> bytes:
    """Put the answers into a request, and say how long it has become."""
    head, _, body = request.partition(_HEAD_END)
    for answer in answers:
        body = body.replace(GAP, json.dumps(answer)[1:-1].encode(), 1)
    return head + b"\r\nContent-Length: %d" % len(body) + _HEAD_END + body


def answer_of(raw: bytes) -> str | None:
    """The text of a whole streamed answer; None of anything else, which nobody can go on from.

    /generate repeats the text so far in each event, unless it streams increments; OpenAI's
    interfaces send what is new.
    """
    head, _, body = raw.partition(_HEAD_END)
    while head.startswith(b"HTTP/1.1 1"):
        head, _, body = body.partition(_HEAD_END)
    if not head.startswith(b"HTTP/1.1 200"):
        return None
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        body = _unchunked(body)
    text = ""
    for event in body.split(b"\n\n"):
        data = event.strip().partition(b"data:")[2].strip()
        if data and data != b"[DONE]":
            try:
                text = _extended(text, json.loads(data))
            except (ValueError, AttributeError, TypeError, IndexError):
                return None
    return text


def _extended(text: str, event: dict[str, Any]) -> str:
    if "text" in event:
        new = str(event["text"])
        return new if new.startswith(text) else text + new
    for choice in event.get("choices") or ():
        text += str((choice.get("delta") or choice).get("content") or choice.get("text") or "")
    return text


def _unchunked(body: bytes) -> bytes:
    """Take away the framing; what is no chunk ends it."""
    at = 0
    parts: list[bytes] = []
    while True:
        end = body.find(b"\r\n", at)
        try:
            size = int(body[at:end].split(b";")[0], 16)
        except ValueError:
            return b"".join(parts)
        if end < 0 or not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
