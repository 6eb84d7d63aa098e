import json

import pytest

from tasks.domain.errors import InputError
from tasks.load.request import encode_request
from tasks.load.target import Target

URL = "http://gpu-box:30000"


def split(request: bytes):
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body), body


def test_sglang_gets_token_ids_and_ignores_the_end_of_sequence():
    first, headers, body, raw = split(encode_request(Target(URL), [5, 6], 9))
    assert first == "POST /generate HTTP/1.1"
    assert headers["Host"] == "gpu-box:30000"
    assert int(headers["Content-Length"]) == len(raw)
    assert body["input_ids"] == [5, 6]
    assert body["stream"] is True
    assert body["sampling_params"] == {
        "temperature": 0.0,
        "max_new_tokens": 9,
        "ignore_eos": True,
    }


def test_sglang_gets_text_as_text():
    assert split(encode_request(Target(URL), "hello", 9))[2]["text"] == "hello"


@pytest.mark.parametrize("prompt", ["hello", [1, 2]])
def test_completions(prompt):
    target = Target(URL, "openai", model="m")
    first, _, body, _ = split(encode_request(target, prompt, 9))
    assert first == "POST /v1/completions HTTP/1.1"
    assert (body["model"], body["prompt"], body["max_tokens"]) == ("m", prompt, 9)
    assert body["stream_options"]["include_usage"] is True


def test_chat():
    first, _, body, _ = split(encode_request(Target(URL, "openai-chat"), "hello", 9))
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert body["messages"] == [{"role": "user", "content": "hello"}]


def test_key_path_and_extra_fields():
    target = Target(f"{URL}/api/", api_key="secret", extra={"lora_path": "x", "stream": True})
    first, headers, body, _ = split(encode_request(target, "hello", 9))
    assert first == "POST /api/generate HTTP/1.1"
    assert headers["Authorization"] == "Bearer secret"
    assert body["lora_path"] == "x"
    assert "secret" not in repr(target)


@pytest.mark.parametrize("url", ["gpu-box:30000", "ftp://gpu-box", "http://", ""])
def test_a_url_that_cannot_be_loaded_is_named(url):
    with pytest.raises(InputError, match="not of the form http://host:port"):
        Target(url)


def test_the_port_of_https_is_443():
    assert (Target("https://gpu-box").port, Target("https://gpu-box").tls) == (443, True)


def test_the_port_of_http_is_80():
    assert Target("http://gpu-box").port == 80
