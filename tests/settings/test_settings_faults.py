"""A sweep file that is wrong: one line per fault, word for word, and never a traceback."""

from pathlib import Path

import pytest

from settings.invalid import InvalidSettings
from settings.sweep_file import read_sweep

GOOD = """\
name: night
server: {model_path: m}
axes:
  cuda_graph_max_bs: [64, 128]
  env.X: [1, 2]
workloads:
  - {name: chat, concurrency: [1, 16]}
"""
AXES = (
    "the axes are cuda_graph_max_bs, nccl_channels, speculative_steps, stack, "
    "args.<flag> and env.<VARIABLE>"
)
DURATION = "expected a duration such as 90s, 15m, 6h or 1h30m"
SCALAR = "input should be a valid boolean, or integer, or number, or string"


def faults_of(path: Path, text: str | bytes = "", *overrides: str) -> list[str]:
    if text:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InvalidSettings) as caught:
        read_sweep(path, overrides)
    assert str(caught.value) == "\n".join(
        f"{caught.value.source}: {f}" for f in caught.value.faults
    )
    assert all("\n" not in fault and len(fault) < 300 for fault in caught.value.faults)
    return caught.value.faults


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("nmae: x", "nmae: no such key; did you mean 'name'?"),
        ("search: {repeatz: 2}", "search.repeatz: no such key; did you mean 'repeats'?"),
        ("retry: {q: 1}", "retry.q: no such key; allowed are max_attempts"),
        (
            "retry: {max_attempts: 0}",
            "retry.max_attempts: 0 is not valid: input should be greater than or equal to 1",
        ),
        ("retry: 3", "retry: 3 is not valid: expected keys such as max_attempts"),
        ("search: {strategy: rnd}", "search.strategy: 'rnd' is not valid: input should be 'grid'"),
        ("search: {budget: soon}", f"search.budget: 'soon': {DURATION}"),
        ("search: {budget: -5s}", f"search.budget: '-5s': {DURATION}"),
        ("search: {budget: .inf}", f"search.budget: inf: {DURATION}"),
        ("search: {budget: .nan}", f"search.budget: nan: {DURATION}"),
        ("search: {budget: 1e999}", f"search.budget: inf: {DURATION}"),
        (
            "search: {budget: -5}",
            "search.budget: -5 is not valid: input should be greater than 0",
        ),
        ("search: {budget: 0}", "search.budget: 0 is not valid: input should be greater than 0"),
        (
            "search: {budget: 1e9}",
            "search.budget: 1000000000.0: a duration is at most a year, 366d",
        ),
        (
            "canary: {agreement: .nan}",
            "canary.agreement: nan is not valid: input should be a finite number",
        ),
        (
            "canary: {prompts: hello}",
            "canary.prompts: 'hello' is not valid: input should be a valid list",
        ),
        (
            "canary: {enabled: perhaps}",
            "canary.enabled: 'perhaps' is not valid: "
            "input should be a valid boolean, unable to interpret input",
        ),
        (
            "objective: {metric: outputthroughput}",
            "objective.metric: 'outputthroughput': no such metric; "
            "did you mean 'output_throughput'?",
        ),
        (
            "objective: {workload: chatt}",
            "objective.workload: 'chatt' is not a workload of this sweep; did you mean 'chat'?",
        ),
        (
            "objective: {concurrency: 8}",
            "objective.concurrency: 8 is not a level of that workload; it has [1, 16]",
        ),
        (
            "objective: {request_rate: 8}",
            "objective.request_rate: 8.0 is not a level of that workload; it has none",
        ),
        (
            "objective: {goal: maximise}",
            "objective.goal: 'maximise' is not valid: input should be 'maximize' or 'minimize'",
        ),
        (
            "objective: {metric: p99_ttft_ms, goal: maximize}",
            "objective.goal: maximizing p99_ttft_ms finds the slowest; say minimize",
        ),
        ("constraints: [{metric: p99_ttft_ms}]", "constraints.0: give max or min"),
        (
            "constraints: [{metric: p99_ttft_ms, min: 5, max: 3}]",
            "constraints.0: nothing is at least 5 and at most 3",
        ),
        ("constraints: [{max: 3}]", "constraints.0.metric: missing; it must be given"),
        (
            "exclude: [{cuda_graph_max_bs: 100}]",
            "exclude.0.cuda_graph_max_bs: 100 is not a value of that axis; it has [64, 128]",
        ),
        (
            "exclude: [{nccl_channels: 8}]",
            "exclude.0.nccl_channels: not an axis of this sweep",
        ),
        ("exclude: [{}]", "exclude.0: names no axis, and would exclude everything"),
        (
            "exclude: [{cuda_graph_maxbs: 64}]",
            "exclude.0.cuda_graph_maxbs: no such axis; did you mean 'cuda_graph_max_bs'?",
        ),
        (
            "baseline: {cuda_graph_max_bs: many}",
            "baseline.cuda_graph_max_bs: 'many' is not a whole number of at least 1",
        ),
        (
            "baseline: {env.Y: 1}",
            "baseline.env.Y: not an axis of this sweep; did you mean 'env.X'?",
        ),
        ('host: "\\0"', r"host: '\x00': holds a character that no command line can carry"),
        ('host: "\\ud800"', r"host: '\ud800': holds a character that no command line can carry"),
        ("host: 2026-11-30", "host: datetime.date(2026, 11, 30) is not valid: "
         "input should be a valid string"),
    ],
)  # fmt: skip
def test_a_fault_beside_what_is_right(tmp_path: Path, extra: str, line: str):
    assert faults_of(tmp_path / "sweep.yaml", f"{GOOD}{extra}\n") == [line]


@pytest.mark.parametrize(
    ("axes", "lines"),
    [
        ("[1]", ["axes: [1] is not valid: input should be a valid table of keys"]),
        (
            "{cuda_graph_max_bz: [1], foo: [2], 1: [3], args.: [4]}",
            [
                "axes.cuda_graph_max_bz: no such axis; did you mean 'cuda_graph_max_bs'?",
                f"axes.foo: no such axis; {AXES}",
                f"axes.1: no such axis; {AXES}",
                f"axes.args.: no such axis; {AXES}",
            ],
        ),
        (
            "{env.A.B: [1], env.1A: [1], env.: [1]}",
            [
                "axes.env.A.B: 'A.B' is no variable's name: "
                "letters, digits and _, no digit at first",
                "axes.env.1A: '1A' is no variable's name: letters, digits and _, no digit at first",
                f"axes.env.: no such axis; {AXES}",
            ],
        ),
        (
            "{nccl_channels: [a, 0, true], speculative_steps: [], stack: [1, '', null]}",
            [
                "axes.nccl_channels: 'a' is not a whole number of at least 1",
                "axes.nccl_channels: 0 is not a whole number of at least 1",
                "axes.nccl_channels: True is not a whole number of at least 1",
                "axes.speculative_steps: an axis needs at least one value",
                "axes.stack: 1 is not the path of a Python interpreter",
                "axes.stack: '' is not the path of a Python interpreter",
                "axes.stack: None is not the path of a Python interpreter",
            ],
        ),
        (
            "{nccl_channels: 8}",
            ["axes.nccl_channels: 8 is not valid: input should be a valid list"],
        ),
        (
            "{args.tp-size: [1], args.tp_size: [2]}",
            ["axes: an axis stands here twice: args.tp-size and args.tp_size are one"],
        ),
        ("{args.x: [1, 1]}", ["axes.args.x: [1, 1] names a value twice"]),
        ("{env.X: [1, '1']}", ["axes.env.X: ['1', '1'] names a value twice"]),
        ("{args.x: [[1]]}", [f"axes.args.x.0: [1] is not valid: {SCALAR}"]),
        (
            "{args.x: [.inf]}",
            [
                "axes.args.x.0: inf is not valid: "
                "input should be a valid boolean, or finite number, or string"
            ],
        ),
        (
            "{cuda_graph_max_bs: [1], args.cuda-graph-max-bs: [2], nccl_channels: [8], "
            "env.NCCL_MAX_NCHANNELS: [8]}",
            [
                "axes.args.cuda_graph_max_bs: cuda_graph_max_bs sets that too",
                "axes.env.NCCL_MAX_NCHANNELS: nccl_channels sets that too",
            ],
        ),
    ],
)
def test_every_wrong_axis_is_named(tmp_path: Path, axes: str, lines: list[str]):
    text = "name: n\nserver: {model_path: m}\nworkloads: [{name: w, concurrency: 1}]\n"
    assert faults_of(tmp_path / "sweep.yaml", f"{text}axes: {axes}\n") == lines


@pytest.mark.parametrize(
    ("server", "lines"),
    [
        ("", ["server: None is not valid: expected keys such as model_path, args, env"]),
        ("{}", ["server.model_path: missing; it must be given"]),
        (
            "{model_path: m, args: {a: {b: 1}, c: [1, [2]]}}",
            [
                f"server.args.a: {{'b': 1}} is not valid: {SCALAR}, or list",
                f"server.args.c.1: [2] is not valid: {SCALAR}",
            ],
        ),
        (
            "{model_path: m, args: {tp-size: 1, tp_size: 2}}",
            ["server.args: a flag stands here twice: --tp-size, tp-size and tp_size are the same"],
        ),
        (
            f"{{model_path: m, args: {{a: {10**30}}}}}",
            ["server.args: a whole number must fit into 64 bits"],
        ),
        (
            '{model_path: m, env: {"A B": s3cret, "": 2, A=B: 1, C: [s3cret], D: {s3cret: 1}}}',
            [
                "server.env: 'A B' is no variable's name: letters, digits and _, no digit at first",
                "server.env: '' is no variable's name: letters, digits and _, no digit at first",
                "server.env: 'A=B' is no variable's name: letters, digits and _, no digit at first",
                "server.env.C: expected text or a number, not a list",
                "server.env.D: expected text or a number, not a dict",
            ],
        ),
        (
            "{model_path: m, env: HF_TOKEN=s3cret}",
            ["server.env: (hidden) is not valid: input should be a valid table of keys"],
        ),
    ],
)
def test_a_server_that_cannot_be_meant(tmp_path: Path, server: str, lines: list[str]):
    text = f"name: n\nserver: {server}\nworkloads: [{{name: w, concurrency: 1}}]\n"
    assert faults_of(tmp_path / "sweep.yaml", text) == lines


@pytest.mark.parametrize(
    ("workloads", "lines"),
    [
        ("[]", ["workloads: [] is not valid: list should have at least 1 item, not 0"]),
        (
            "[{name: w}]",
            ["workloads.0: give either concurrency or request_rate, such as [1, 16], or largest"],
        ),
        (
            "[{name: w, concurrency: 1, request_rate: 2}]",
            ["workloads.0: give either concurrency or request_rate, such as [1, 16], or largest"],
        ),
        (
            "[{name: w, concurrency: [0, x]}]",
            [
                "workloads.0.concurrency.0: 0 is not valid: "
                "input should be greater than or equal to 1",
                "workloads.0.concurrency.1: 'x' is not valid: "
                "input should be a valid integer, unable to parse string as an integer",
            ],
        ),
        (
            "[{name: w, concurrency: [4, 4]}]",
            ["workloads.0.concurrency: [4, 4] names a level twice"],
        ),
        (
            "[{name: w, request_rate: .inf}]",
            ["workloads.0.request_rate.0: inf is not valid: input should be a finite number"],
        ),
        (
            "[{name: w, concurrency: 1}, {name: w, concurrency: 2}]",
            ["workloads: the name 'w' is used twice"],
        ),
        (
            "[{name: a b, concurrency: 1}]",
            [
                "workloads.0.name: 'a b' is not valid: "
                "string should match pattern '^[A-Za-z0-9_.-]+$'"
            ],
        ),
    ],
)
def test_workloads_that_cannot_be_meant(tmp_path: Path, workloads: str, lines: list[str]):
    text = f"name: n\nserver: {{model_path: m}}\nworkloads: {workloads}\n"
    assert faults_of(tmp_path / "sweep.yaml", text) == lines


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"\x7fELF\x02\x01\xff\xfe", ["not a text file: 'utf-8' codec can't decode byte 0xff "
                                        "in position 6: invalid start byte"]),
        ("# nothing\n", ["expected keys such as name, server and workloads"]),
        ("- a\n- b\n", ["expected keys such as name, server and workloads"]),
        ("just words", ["expected keys such as name, server and workloads"]),
        (
            "name: a\nname: s3cret\n",
            ['not valid YAML: line 2, column 1: found duplicate key "name"'],
        ),
        (
            "name:\n\t- a\n",
            ["not valid YAML: line 2, column 1: found character '\\t' that cannot start any token"],
        ),
        ("a: [" * 5000, ["not valid YAML: nested too deeply"]),
        ("a: 2001-13-45\n", ["not valid YAML: month must be in 1..12"]),
        ("a: !!int abc\n", ["not valid YAML: invalid literal for int() with base 10: 'abc'"]),
        ("a: !!float ''\n", ["not valid YAML: string index out of range"]),
        (
            "a: !!python/object:os.system {}\n",
            [
                "not valid YAML: line 1, column 4: could not determine a constructor for the tag "
                "'tag:yaml.org,2002:python/object:os.system'"
            ],
        ),
        (
            "---\na: 1\n---\nb: 2\n",
            ["not valid YAML: line 3, column 1: but found another document"],
        ),
        ("a: *b\n", ["not valid YAML: line 1, column 4: found undefined alias 'b'"]),
    ],
)  # fmt: skip
def test_what_is_no_sweep_file_at_all(tmp_path: Path, text: str | bytes, lines: list[str]):
    assert faults_of(tmp_path / "sweep.yaml", text) == lines


@pytest.mark.parametrize(
    "extra",
    [
        f"search: {{budget: {'9' * 400}}}",
        f"search: {{budget: {'9' * 5000}}}",
        f'search: {{budget: "{"9" * 400}"}}',
        f"retry: {{max_attempts: 0x{'f' * 5000}}}",
        "host: &a [*a]",
        "exclude: &a [*a]",
        "axes: &a {args.x: *a}",
        "? [a]\n: b",
        "? {a: b}\n: b",
        "1: 2",
        "null: 3",
        f"{LAUGHS}host: *a11",
        f"{LAUGHS}server: {{model_path: m, env: {{A: *a11}}}}".replace("server", "serverr"),
        "host: \x01",
    ],
)
def test_nonsense_is_refused_quickly_and_in_bounded_lines(tmp_path: Path, extra: str):
    assert faults_of(tmp_path / "sweep.yaml", f"{GOOD}{extra}\n")


def test_a_file_that_cannot_be_read(tmp_path: Path):
    assert faults_of(tmp_path / "none.yaml") == ["no such file"]
    assert faults_of(tmp_path) == ["not readable: Is a directory"]
    assert faults_of(Path("/proc/self/mem")) == ["not readable: Input/output error"]
    assert faults_of(tmp_path / ("x" * 300)) == ["not readable: File name too long"]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("repeats", "'repeats': expected key=value, as search.repeats=3"),
        ("=3", "'=3': expected key=value, as search.repeats=3"),
        ("search.repeats=[1", "'search.repeats=[1': not valid YAML: line 1, column 3: "
         "expected ',' or ']', but got '<stream end>'"),
        ("a=2001-99-99", "'a=2001-99-99': not valid YAML: month must be in 1..12"),
        ("workloads.1.requests=2", "'workloads.1.requests=2': 1 is not one of 0 to 0"),
        ("workloads.²=2", "'workloads.²=2': ² is not one of 0 to 0"),
        ("workloads.x=2", "'workloads.x=2': x is not one of 0 to 0"),
        ("name.x=2", "'name.x=2': name has no keys below it"),
        ("search.repeatz=2", "search.repeatz: no such key; did you mean 'repeats'?"),
        ("axes.nccl_channel=[8]", "axes.nccl_channel: no such axis; did you mean 'nccl_channels'?"),
        ("exclude.0.env.X=1", "exclude: {'0': {'env.X': 1}} is not valid: "
         "input should be a valid list"),
        ("=", "'=': expected key=value, as search.repeats=3"),
    ],
)  # fmt: skip
def test_an_override_that_is_wrong(tmp_path: Path, override: str, line: str):
    found = faults_of(tmp_path / "sweep.yaml", GOOD, override)
    assert found == [line]
