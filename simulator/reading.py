"""What a client's JSON asks for, and what SGLang answers where it asks for too much."""

from collections.abc import Mapping
from typing import Any

from simulator.prefix_cache import Tokens
from simulator.streams import Asked
from simulator.words import encode, natural_length

GENERATE_DEFAULT, COMPLETION_DEFAULT = 128, 16
# What a chat template adds round each message, and at the end for the assistant to go on.
TURN: Tokens = (163_587, 163_601)
ASSISTANT: Tokens = (163_588, 163_601)


class Invalid(Exception):
    """A request that the server refuses."""

    def __init__(self, message: str, status: int = 400, openai: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.openai = openai

    @property
    def body(self) -> dict[str, Any]:
        if self.openai:
            return {
                "object": "error",
                "message": self.message,
                "type": "BadRequestError",
                "param": None,
                "code": self.status,
            }
        return {"error": {"message": self.message}}


def read_generate(
    body: Mapping[str, Any], context_length: int, arguments: Mapping[str, Any]
) -> Asked:
    """Read a `/generate` body; `arguments` says how token ids are streamed."""
    ids, text = body.get("input_ids"), body.get("text")
    if (ids is None) == (text is None):
        raise Invalid("Either text, input_ids or input_embeds should be provided.")
    params = body.get("sampling_params") or {}
    return _asked(
        _prompt(ids if text is None else text),
        _whole(params.get("max_new_tokens"), GENERATE_DEFAULT),
        params,
        context_length,
        stream=bool(body.get("stream")),
        logprobs=bool(body.get("return_logprob")),
        disjoint_ids=bool(
            arguments.get("stream_output") or arguments.get("incremental_streaming_output")
        ),
        disjoint_text=bool(arguments.get("incremental_streaming_output")),
    )


def read_completion(body: Mapping[str, Any], context_length: int) -> Asked:
    """Read a `/v1/completions` body."""
    if "prompt" not in body:
        raise Invalid("prompt: Field required", openai=True)
    limit = _whole(body.get("max_tokens"), COMPLETION_DEFAULT)
    return _openai(body, _prompt(body["prompt"]), limit, context_length)


def read_chat(body: Mapping[str, Any], context_length: int) -> Asked:
    """Read a `/v1/chat/completions` body; without a limit the answer ends where it ends."""
    messages = body.get("messages")
    if not messages:
        raise Invalid("messages: Field required", openai=True)
    prompt: Tokens = ()
    for message in messages:
        prompt += TURN + encode(str(message.get("role"))) + encode(_content(message))
    prompt += ASSISTANT
    asked = body.get("max_completion_tokens", body.get("max_tokens"))
    limit = _whole(asked, context_length - len(prompt) - 1)
    return _openai(body, prompt, limit, context_length)


def _openai(body: Mapping[str, Any], prompt: Tokens, limit: int, context_length: int) -> Asked:
    options = body.get("stream_options") or {}
    return _asked(
        prompt,
        limit,
        body,
        context_length,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
    )


def _asked(
    prompt: Tokens, limit: int, params: Mapping[str, Any], context_length: int, **rest: bool
) -> Asked:
    _refuse_too_long(len(prompt), limit, context_length)
    natural = natural_length(prompt)
    ends = not params.get("ignore_eos") and natural < limit
    return Asked(
        prompt=prompt,
        output_len=max(1, natural if ends else limit),
        stops_by_itself=ends,
        sampled=params.get("temperature") != 0,
        **rest,
    )


def _refuse_too_long(prompt: int, limit: int, context_length: int) -> None:
    if prompt >= context_length:
        raise Invalid(
            f"The input ({prompt} tokens) is longer than the model's context length "
            f"({context_length} tokens)."
        )
    if prompt + limit > context_length:
        raise Invalid(
            f"Requested token count exceeds the model's maximum context length of "
            f"{context_length} tokens. You requested a total of {prompt + limit} tokens: {prompt} "
            f"tokens from the input messages and {limit} tokens for the completion. Please reduce "
            f"the number of tokens in the input messages or the completion to fit within the limit."
        )


def _prompt(value: object) -> Tokens:
    """Return the tokens of a text, of token ids, or of a list with one of either."""
    match value:
        case str():
            return encode(value) or (0,)
        case [int(), *_]:
            return tuple(token for token in value if isinstance(token, int))
        case [str() | list() as only]:
            return _prompt(only)
        case _:
            raise Invalid("The simulator takes one prompt a request: a text or token ids.")


def _content(message: Mapping[str, Any]) -> str:
    content: str | list[Mapping[str, Any]] = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content)


def _whole(value: object, default: int) -> int:
    """Read a whole number where JSON may have null; a text that is none is refused."""
    try:
        return default if value is None else int(str(value))
    except ValueError as error:
        raise Invalid(f"{value!r} is no whole number") from error
