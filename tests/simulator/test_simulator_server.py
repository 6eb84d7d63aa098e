"""What goes over the wire, compared with what SGLang sent."""

import json
import re
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

DATA = Path(__file__).parent / "data"
GREEDY = {"temperature": 0, "ignore_eos": True}


def recorded(name: str) -> list[dict[str, Any]]:
    return events((DATA / name).read_text())


def events(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream, which must end in `[DONE]`."""
    lines = [line for line in text.split("\n\n") if line.strip()]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1].strip() == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def shape(value: Any, depth: int = 4) -> Any:
    """Reduce a value to its keys, in their order."""
    if isinstance(value, dict) and depth:
        return [(key, shape(inner, depth - 1)) for key, inner in value.items()]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [shape(value[0], depth - 1)]
    return None


def generate(client: httpx.Client, text: str | None = None, n: int = 12, **more: Any) -> Any:
    params = {**GREEDY, "max_new_tokens": n}
    body = {"text": text or "Tell me a story.", "sampling_params": params, **more}
    answer = client.post("/generate", json=body)
    assert answer.status_code == 200, answer.text
    return events(answer.text) if more.get("stream") else answer.json()


def test_a_generate_stream_has_the_recorded_shape(client: httpx.Client) -> None:
    ours, real = generate(client, stream=True), recorded("generate_stream.txt")
    assert len(ours) == len(real) == 12
    for index in (0, 1, -1):
        assert shape(ours[index]) == shape(real[index])


def test_a_generate_stream_is_cumulative(client: httpx.Client) -> None:
    ours = generate(client, stream=True)
    assert [event["meta_info"]["completion_tokens"] for event in ours] == list(range(1, 13))
    for earlier, later in pairwise(ours):
        assert later["text"].startswith(earlier["text"])
        assert later["output_ids"][:-1] == earlier["output_ids"]
    assert ours[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 12}
    assert len({event["meta_info"]["id"] for event in ours}) == 1


def test_streamed_or_not_the_answer_is_the_same(client: httpx.Client) -> None:
    whole, last = generate(client), generate(client, stream=True)[-1]
    assert whole["text"] == last["text"]
    assert whole["output_ids"] == last["output_ids"]
    assert re.fullmatch(r"[a-z ,.;]+", whole["text"])


def test_token_ids_may_be_sent_instead_of_text(client: httpx.Client) -> None:
    body = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
    answer = client.post("/generate", json=body).json()
    assert answer["meta_info"]["prompt_tokens"] == 3
    assert len(answer["output_ids"]) == 4


def test_log_probabilities_come_one_a_token(client: httpx.Client) -> None:
    rows = generate(client, n=3, return_logprob=True)["meta_info"]["output_token_logprobs"]
    assert len(rows) == 3
    assert all(row[0] < 0 for row in rows)


def test_without_ignore_eos_an_answer_ends_by_itself(client: httpx.Client) -> None:
    body = {"text": "Hello", "sampling_params": {"temperature": 0, "max_new_tokens": 4000}}
    meta = client.post("/generate", json=body).json()["meta_info"]
    assert meta["finish_reason"]["type"] == "stop"
    assert 64 <= meta["completion_tokens"] < 512


def test_sampling_varies_and_greedy_does_not(client: httpx.Client) -> None:
    body = {"text": "Once", "sampling_params": {"max_new_tokens": 20, "ignore_eos": True}}
    assert len({client.post("/generate", json=body).json()["text"] for _ in range(4)}) > 1
    assert len({generate(client, "Once")["text"] for _ in range(3)}) == 1


def test_a_completions_stream_has_the_recorded_shape(client: httpx.Client) -> None:
    body = {"prompt": "Tell me", "stream": True, "max_tokens": 10, **GREEDY}
    answer = client.post("/v1/completions", json=body | {"stream_options": {"include_usage": True}})
    ours, real = events(answer.text), recorded("completions_stream.txt")
    assert len(ours) == len(real)
    assert shape(ours[0]) == shape(real[0])
    assert shape(ours[-1]) == shape(real[-1])
    assert [e["choices"][0]["finish_reason"] for e in ours[-3:-1]] == [None, "length"]
    assert ours[-1]["usage"]["completion_tokens"] == 10


def test_a_chat_stream_has_the_recorded_shape(client: httpx.Client) -> None:
    message = {"role": "user", "content": "Tell me"}
    body = {"messages": [message], "stream": True, "max_tokens": 10, **GREEDY}
    answer = client.post(
        "/v1/chat/completions", json=body | {"stream_options": {"include_usage": True}}
    )
    ours, real = events(answer.text), recorded("chat_stream.txt")
    for index in (0, 1, -2, -1):
        assert shape(ours[index]) == shape(real[index])
    assert ours[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(e["choices"][0]["delta"]["content"] or "" for e in ours[1:-1])
    plain = client.post("/v1/chat/completions", json=body).text
    assert "total_tokens" not in plain


def test_openai_answers_that_are_not_streamed(client: httpx.Client) -> None:
    completion = client.post("/v1/completions", json={"prompt": [1, 2], "max_tokens": 3, **GREEDY})
    assert completion.json()["usage"]["total_tokens"] == 5
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    answer = client.post("/v1/chat/completions", json={**chat, "max_tokens": 3, **GREEDY}).json()
    assert answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "length"


def test_too_long_a_prompt_is_refused_in_sglangs_words(client: httpx.Client) -> None:
    answer = client.post("/generate", json={"input_ids": [1] * 200_000})
    real = (DATA / "generate_too_long.txt").read_text()
    assert answer.status_code == 400
    assert re.sub(r"\d+", "N", answer.text) == re.sub(r"\d+", "N", real)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/generate", b"{", 422),
        ("/generate", b"[]", 422),
        ("/generate", b"{}", 400),
        ("/generate", b'{"text": ["a", "b"]}', 400),
        ("/generate", b'{"text": "a", "sampling_params": {"max_new_tokens": 999999}}', 400),
        ("/generate", b'{"text": "a", "sampling_params": {"max_new_tokens": "x"}}', 400),
        ("/v1/completions", b"{}", 400),
        ("/v1/chat/completions", b"{}", 400),
        ("/nowhere", b"{}", 404),
        ("/health", b"{}", 405),
    ],
)
def test_bad_requests_are_answered(
    client: httpx.Client, path: str, body: bytes, status: int
) -> None:
    assert client.post(path, content=body).status_code == status
    assert client.get("/health").status_code == 200


def test_a_repeated_prompt_is_cached_until_the_cache_is_flushed(client: httpx.Client) -> None:
    text = "one two three four five six seven eight nine ten"
    client.post("/flush_cache")
    cached = [generate(client, text, 2)["meta_info"]["cached_tokens"] for _ in range(2)]
    assert cached == [0, 9]
    flushed = client.get("/flush_cache")
    assert flushed.text == (DATA / "flush_cache_post.txt").read_text()
    assert generate(client, text, 2)["meta_info"]["cached_tokens"] == 0


def test_what_a_server_says_of_itself(client: httpx.Client) -> None:
    keys = json.loads((DATA / "server_info_keys.json").read_text())
    for path in ("/server_info", "/get_server_info"):
        info = client.get(path).json()
        assert set(keys["keys"]) <= set(info)
        assert set(keys["internal_state_keys"]) <= set(info["internal_states"][0])
        assert (info["version"], info["tp_size"], info["cuda_graph_max_bs"]) == ("0.5.9", 8, 128)
    for path in ("/model_info", "/get_model_info"):
        assert shape(client.get(path).json()) == shape(
            json.loads((DATA / "model_info.txt").read_text())
        )
    models = client.get("/v1/models").json()
    assert shape(models) == shape(json.loads((DATA / "v1_models.txt").read_text()))


def test_metrics_have_recorded_names_and_types(client: httpx.Client) -> None:
    generate(client, n=3)
    text = client.get("/metrics").text
    ours = {line for line in text.splitlines() if line.startswith("# TYPE")}
    real = set((DATA / "metric_types.txt").read_text().splitlines())
    assert len(ours & real) > 15
    assert ours - real <= {"# TYPE sglang:cached_tokens_total counter"}
    count = re.search(r"^sglang:generation_tokens_total\{.*\} (.*)$", text, re.MULTILINE)
    assert count
    assert float(count.group(1)) >= 3


def test_health_generates_where_nothing_runs(client: httpx.Client) -> None:
    assert client.get("/health").status_code == 200
    assert client.get("/health_generate").status_code == 200


def raw(port: int, *pieces: bytes) -> bytes:
    """Send bytes as they are and read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        for piece in pieces:
            sock.sendall(piece)
        answer = b""
        while data := sock.recv(65_536):
            answer += data
    return answer


def test_requests_may_be_cut_anywhere_and_follow_each_other(served) -> None:
    one = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = raw(served.port, one[:10], one[10:] + one, last)
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_a_chunked_request_body_is_read(served) -> None:
    body = b'{"text":"a","sampling_params":{"max_new_tokens":1}}'
    head = b"POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    chunks = b"5\r\n" + body[:5] + b"\r\n%x\r\n" % len(body[5:]) + body[5:] + b"\r\n0\r\n\r\n"
    assert b"output_ids" in raw(
        served.port, head + b"transfer-encoding: chunked\r\n\r\n", chunks[:9], chunks[9:]
    )


def test_a_client_that_asks_for_permission_gets_it(served) -> None:
    body = b'{"text":"a","sampling_params":{"max_new_tokens":1}}'
    head = b"POST /generate HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\n"
    answer = raw(served.port, head + b"content-length: %d\r\n\r\n" % len(body), body)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


def test_noise_is_refused(served) -> None:
    assert raw(served.port, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(served.port, b"GET / HTTP/1.1\r\ncontent-length: many\r\n\r\n").startswith(
        b"HTTP/1.1 400"
    )


def test_a_client_that_leaves_takes_its_request_along(client: httpx.Client) -> None:
    params = {"max_new_tokens": 100_000, "ignore_eos": True}
    body = {"text": "go on", "stream": True, "sampling_params": params}
    with client.stream("POST", "/generate", json=body) as answer:
        next(answer.iter_lines())
    for _ in range(200):
        if client.get("/get_load").json()[0]["num_reqs"] == 0:
            return
    raise AssertionError("the request is still running")


def test_disjoint_segments_where_asked_for(simulator) -> None:
    served = simulator.serve("--stream-output")
    with httpx.Client(base_url=served.url) as client:
        ours = generate(client, stream=True)
    assert all(len(event["output_ids"]) == 1 for event in ours)
    assert len(ours[-1]["text"]) > len(ours[0]["text"])
    served.stop()


def test_speculation_sends_several_tokens_a_chunk_and_reports_it(simulator) -> None:
    served = simulator.serve("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
    with httpx.Client(base_url=served.url) as client:
        ours = generate(client, n=200, stream=True)
        counts = [event["meta_info"]["completion_tokens"] for event in ours]
        meta = ours[-1]["meta_info"]
        state = client.get("/server_info").json()["internal_states"][0]
        client.post("/flush_cache")
        flushed = client.get("/server_info").json()["internal_states"][0]
    jumps = {later - earlier for earlier, later in pairwise(counts)}
    assert jumps == {1, 2, 3, 4}
    assert meta["spec_verify_ct"] == len(ours) - 1
    assert meta["spec_accept_length"] == pytest.approx(200 / meta["spec_verify_ct"])
    assert state["avg_spec_accept_length"] == pytest.approx(2.533, rel=0.1)
    assert flushed["avg_spec_accept_length"] == 0
    served.stop()


def test_an_api_key_is_asked_for(simulator) -> None:
    served = simulator.serve("--api-key", "secret")
    with httpx.Client(base_url=served.url) as client:
        assert client.get("/v1/models").status_code == 401
        known = client.get("/v1/models", headers={"authorization": "Bearer secret"})
        assert known.status_code == 200
        assert client.get("/health").status_code == 200
        assert client.get("/metrics").status_code == 404
    served.stop()
