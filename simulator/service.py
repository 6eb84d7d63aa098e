"""The endpoints: from a request's JSON to a job for the pacer, and what a server says of itself."""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator import logs, prometheus
from simulator.connection import Connection
from simulator.engine import Engine, Request, Step
from simulator.launch import Launch
from simulator.pacing import Pacer
from simulator.reading import Invalid, read_chat, read_completion, read_generate
from simulator.streams import Asked, Chat, Completion, Format, Generate, Job
from simulator.wire import REASONS, HttpRequest, json_response, response, stream_head
from simulator.words import EOS_ID, Author, broken_ring, healthy_ring

FLUSHED = (
    b"Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    b"waiting requests, the operation will not be performed.)\n"
)


@dataclass(slots=True)
class Service:
    """A running server without its sockets."""

    launch: Launch
    pacer: Pacer = field(init=False)
    author: Author = field(init=False)
    tally: prometheus.Tally = field(default_factory=prometheus.Tally)
    on_complete: Callable[[Connection], None] = lambda _: None
    ready_s: float = 0.0
    fatal_request: int = 0
    on_fatal_request: Callable[[], None] = lambda: None
    startup_s: float = 0.0
    requests: int = 0
    generations: int = 0
    decode_steps: int = 0
    throughput: float = 0.0
    _wall_offset_s: float = 0.0
    _window: tuple[float, int] = (0.0, 0)

    def __post_init__(self) -> None:
        launch = self.launch
        self.author = Author(broken_ring() if launch.broken else healthy_ring())
        self._wall_offset_s = time.time() - time.monotonic()
        engine = Engine(
            launch.speed,
            launch.memory,
            chunk=launch.configuration.chunked_prefill_size,
            time_scale=launch.scenario.time_scale,
            radix=not launch.configuration.disable_radix_cache,
        )
        self.pacer = Pacer(engine, self._on_step, self._completed, self._finished)

    @property
    def engine(self) -> Engine:
        return self.pacer.engine

    def handle(self, connection: Connection, request: HttpRequest, now_s: float) -> bytes | None:
        """Answer a request, or start a generation and return None or the head of its stream."""
        self.tally.requests[(request.path, request.method)] += 1
        handler, status = self._route(request)
        try:
            answer = handler(connection, request, now_s) if handler else None
        except Invalid as error:
            status, answer = error.status, json_response(error.body, error.status)
        if status != 200 and answer is None:
            answer = json_response({"detail": REASONS[status]}, status)
        self.tally.responses[(request.path, request.method, status)] += 1
        logs.access(connection.peer, request.method, request.target, status, REASONS[status])
        return answer

    def _route(self, request: HttpRequest) -> tuple["Handler | None", int]:
        methods = ROUTES.get(request.path)
        key = self.launch.configuration.arguments.get("api_key")
        health = request.path.startswith("/health")
        public = health or request.path.startswith("/metrics")
        if key and not public and request.headers.get("authorization") != f"Bearer {key}":
            return None, 401
        if methods is None or (self.launch.configuration.arguments["node_rank"] and not health):
            return None, 404
        handler = methods.get(request.method)
        if handler is None:
            return None, 405
        return handler.__get__(self), 200

    def generate(self, connection: Connection, request: HttpRequest, now_s: float) -> bytes | None:
        arguments = self.launch.configuration.arguments
        asked = read_generate(_json(request), self._limits(), arguments)
        speculation = self.launch.configuration.speculation
        tokens = speculation.draft_tokens if speculation else 0
        version = str(arguments.get("weight_version", "default"))
        return self._start(connection, asked, Generate(version, EOS_ID, tokens), now_s)

    def complete(self, connection: Connection, request: HttpRequest, now_s: float) -> bytes | None:
        body = _json(request)
        form = Completion(str(body.get("model") or self._model_name), EOS_ID)
        return self._start(connection, read_completion(body, self._limits()), form, now_s)

    def chat(self, connection: Connection, request: HttpRequest, now_s: float) -> bytes | None:
        body = _json(request)
        form = Chat(str(body.get("model") or self._model_name), EOS_ID)
        return self._start(connection, read_chat(body, self._limits()), form, now_s)

    def _start(
        self, connection: Connection, asked: Asked, form: Format, now_s: float
    ) -> bytes | None:
        self._refuse_early(now_s)
        self.generations += 1
        if self.generations == self.fatal_request:
            self.on_fatal_request()
        return self._submit(connection, asked, form, now_s)

    def _submit(
        self, connection: Connection, asked: Asked, form: Format, now_s: float
    ) -> bytes | None:
        """Hand a generation to the pacer; return the head of its stream, if it is one."""
        self.requests += 1
        salt = self.requests if asked.sampled else 0
        job = Job(
            id=uuid.uuid4().hex,
            asked=asked,
            request=Request(self.requests, asked.prompt, asked.output_len),
            answer=self.author.answer(asked.prompt, asked.output_len, salt),
            format=form,
            received_s=now_s + self._wall_offset_s,
            wall_offset_s=self._wall_offset_s,
        )
        self.pacer.submit(job, connection, now_s)
        return stream_head() if asked.stream else None

    def _refuse_early(self, now_s: float) -> None:
        """Refuse to generate while a server that claims health isn't ready (`health-early`)."""
        fault = self.launch.faults.get("health-early")
        if fault and now_s < self.ready_s and fault.details.get("mode", "block") != "block":
            raise Invalid("The server is not ready to generate.", 503)

    def health(self, connection: Connection, request: HttpRequest, now_s: float) -> bytes | None:
        """Generate one token where nothing runs, as SGLang does; a busy server is healthy.

        A node that isn't the first is so anyway.
        """
        later_node = bool(self.launch.configuration.arguments["node_rank"])
        if later_node or self.pacer.busy or now_s < self.ready_s:
            return response(200, b"")
        asked = Asked((0,), 1, stops_by_itself=False, stream=False)
        return self._submit(connection, asked, Empty(), now_s)

    def flush_cache(self, *_: object) -> bytes:
        flushed = not self.pacer.busy and self.engine.flush()
        return response(200 if flushed else 400, FLUSHED, "text/plain; charset=utf-8")

    def model_info(self, *_: object) -> bytes:
        arguments = self.launch.configuration.arguments
        return json_response(
            {
                "model_path": arguments["model_path"],
                "tokenizer_path": arguments["tokenizer_path"],
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": arguments.get("weight_version", "default"),
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": self.launch.model_config.get("model_type", "kimi_k25"),
                "architectures": [self.launch.architecture],
            }
        )

    def server_info(self, *_: object) -> bytes:
        memory, arguments = self.launch.memory, self.launch.configuration.arguments
        state: dict[str, Any] = {
            **arguments,
            "use_mla_backend": True,
            "last_gen_throughput": self.throughput,
            "memory_usage": {
                "weight": round(memory.weights_mib / 1024, 2),
                "kvcache": round(memory.kv_mib / 1024, 2),
                "token_capacity": memory.max_total_num_tokens,
                "graph": round(memory.graph_mib / 1024, 2),
            },
            "effective_max_running_requests_per_dp": memory.max_running_requests,
        }
        if self.launch.configuration.speculation:
            state["avg_spec_accept_length"] = self.engine.counters.accept_length
        info = {
            **arguments,
            "status": "ready",
            "max_total_num_tokens": memory.max_total_num_tokens,
            "max_req_input_len": self.launch.context_length - 6,
            "internal_states": [state],
            "version": self.launch.version,
        }
        return json_response(info)

    def models(self, *_: object) -> bytes:
        card = {
            "id": self._model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": self._model_name,
            "parent": None,
            "max_model_len": self.launch.context_length,
        }
        return json_response({"object": "list", "data": [card]})

    def metrics(self, *_: object) -> bytes:
        if not self.launch.configuration.arguments.get("enable_metrics"):
            return json_response({"detail": "Not Found"}, 404)
        text = prometheus.render(self._snapshot(), self.tally)
        return response(200, text.encode(), "text/plain; version=1.0.0; charset=utf-8")

    def lateness(self, *_: object) -> bytes:
        return json_response(self.pacer.lateness.figures())

    def load(self, *_: object) -> bytes:
        engine = self.engine
        one = {
            "rid": None,
            "http_worker_ipc": None,
            "dp_rank": None,
            "num_reqs": len(engine.running) + len(engine.waiting),
            "num_waiting_reqs": len(engine.waiting),
            "num_tokens": engine.reserved_tokens,
            "ts_tic": time.monotonic(),
        }
        return json_response([one])

    @property
    def _model_name(self) -> str:
        return str(self.launch.configuration.arguments["served_model_name"])

    def _limits(self) -> int:
        return self.launch.context_length

    def _completed(self, connection: Connection) -> None:
        self.on_complete(connection)

    def _finished(self, job: Job) -> None:
        request = job.request
        self.tally.finished(request)
        self.engine.remember(request.prompt + job.answer.tokens(request.produced))

    def _snapshot(self) -> prometheus.Snapshot:
        engine, memory = self.engine, self.launch.memory
        used = min(engine.reserved_tokens, memory.max_total_num_tokens)
        counters = engine.counters
        return prometheus.Snapshot(
            model=self._model_name,
            running=len(engine.running),
            queued=len(engine.waiting),
            used_tokens=used,
            max_tokens=memory.max_total_num_tokens,
            throughput=self.throughput,
            cache_hit_rate=counters.cached_tokens / max(1, counters.prompt_tokens),
            accept_length=counters.accept_length,
            accept_rate=self._accept_rate(),
            startup_s=self.startup_s,
            counters=counters,
        )

    def _accept_rate(self) -> float:
        """Return which part of the proposed draft tokens was accepted."""
        accepted = max(0.0, self.engine.counters.accept_length - 1)
        return accepted / max(1, self.launch.speed.verify_tokens - 1)

    def _on_step(self, step: Step) -> None:
        """Log batches as SGLang's scheduler does: each prefill, every 40th decode step."""
        rank, engine = self.launch.rank(0), self.engine
        usage = engine.reserved_tokens / max(1, self.launch.memory.max_total_num_tokens)
        if step.prefill:
            rate = step.tokens / (step.end_s - step.start_s)
            logs.log(
                f"Prefill batch, #new-seq: {len(step.prefill)}, #new-token: {step.tokens}, "
                f"#cached-token: {step.cached_tokens}, token usage: {usage:.2f}, #running-req: "
                f"{len(engine.running) - len(step.prefill)}, #queue-req: {len(engine.waiting)}, "
                f"input throughput (token/s): {rate:.2f}, cuda graph: False",
                rank,
            )
            return
        self.decode_steps += 1
        if self.decode_steps % 40 == 0:
            self._log_decode(step, usage, rank)

    def _log_decode(self, step: Step, usage: float, rank: str) -> None:
        engine, batch = self.engine, len(step.decode)
        since_s, tokens = self._window
        generated = engine.counters.generated_tokens
        self.throughput = (generated - tokens) / max(1e-6, step.start_s - since_s)
        self._window = (step.start_s, generated)
        spec = ""
        if engine.deck:
            accepted = engine.counters.accept_length
            spec = f"accept len: {accepted:.2f}, accept rate: {self._accept_rate():.2f}, "
        graph = batch <= engine.speed.graph_max_bs
        logs.log(
            f"Decode batch, #running-req: {batch}, #token: {engine.reserved_tokens}, "
            f"token usage: {usage:.2f}, {spec}cuda graph: {graph}, "
            f"gen throughput (token/s): {self.throughput:.2f}, #queue-req: {len(engine.waiting)}, ",
            rank,
        )


@dataclass(slots=True)
class Empty:
    """The answer of a health check: a generation whose text nobody sees."""

    def events(self, job: Job, count: int) -> bytes:
        return b""

    def body(self, job: Job) -> bytes:
        return b""


def _json(request: HttpRequest) -> Mapping[str, Any]:
    try:
        body = json.loads(request.body)
    except ValueError as error:
        raise Invalid("Invalid JSON in the request body", 422) from error
    if not isinstance(body, dict):
        raise Invalid("The request body is no JSON object", 422)
    return body


Handler = Callable[[Connection, HttpRequest, float], bytes | None]
_BOTH = ("GET", "POST")
ROUTES: dict[str, dict[str, Any]] = {
    "/health": {"GET": Service.health},
    "/health_generate": {"GET": Service.health},
    "/generate": dict.fromkeys(("POST", "PUT"), Service.generate),
    "/v1/completions": {"POST": Service.complete},
    "/v1/chat/completions": {"POST": Service.chat},
    "/v1/models": {"GET": Service.models},
    "/model_info": {"GET": Service.model_info},
    "/get_model_info": {"GET": Service.model_info},
    "/server_info": {"GET": Service.server_info},
    "/get_server_info": {"GET": Service.server_info},
    "/get_load": {"GET": Service.load},
    "/flush_cache": dict.fromkeys(_BOTH, Service.flush_cache),
    "/metrics": {"GET": Service.metrics},
    "/simulator/lateness": {"GET": Service.lateness},
}
