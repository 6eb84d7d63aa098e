"""The command line of a server, and that a shell makes of it exactly what we start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.configuration import ServerConfiguration
from tasks.domain.sglang import resolve_flag
from tasks.server.command import CommandLine, command_line

LAUNCH = ("-m", "sglang.launch_server")
NASTY = [
    "plain",
    "two words",
    "it's",
    'say "hi"',
    "$HOME `id` $(id)",
    "a\nb\n",
    "tab\there",
    "back\\slash\\",
    "*?[x]{a,b}",
    "~",
    "~root/x",
    "; exit 1 #",
    "-1",
    "ü€",
    "",
]


@pytest.fixture(scope="module")
def dumping(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter's stand-in that says what it was started with."""
    path = tmp_path_factory.mktemp("bin") / "py thon3"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "print(json.dumps([sys.argv, dict(os.environ)]))\n"
    )
    path.chmod(0o755)
    return str(path)


def dumped(program: list[str], home: str = "/home/of-nobody") -> tuple[list[str], dict[str, str]]:
    done = subprocess.run(
        program, capture_output=True, check=True, env={"PATH": os.environ["PATH"], "HOME": home}
    )
    argv, env = json.loads(done.stdout)
    return argv, {n: v for n, v in env.items() if n not in {"PATH", "HOME", "PWD", "OLDPWD", "_"}}


def without_ours(env: dict[str, str]) -> dict[str, str]:
    """What a shell or Python itself adds is nobody's wish."""
    return {name: value for name, value in env.items() if name not in {"SHLVL", "LC_CTYPE"}}


def test_a_command_line_by_hand():
    args = {"tp": 8, "trust_remote_code": True, "x": False, "y": None, "sizes": [1, 2], "f": 0.85}
    configuration = ServerConfiguration("/models/kimi", args, {"NCCL_ALGO": "Ring"})
    command = command_line(configuration, "~/env/bin/python3", LAUNCH, port=30001)
    assert command.argv == (
        "~/env/bin/python3", "-m", "sglang.launch_server", "--model-path", "/models/kimi",
        "--tp", "8", "--trust-remote-code", "--sizes", "1", "2", "--f", "0.85",
        "--host", "127.0.0.1", "--port", "30001",
    )  # fmt: skip
    assert command.shell == (
        "NCCL_ALGO=Ring ~/env/bin/python3 -m sglang.launch_server --model-path /models/kimi "
        "--tp 8 --trust-remote-code --sizes 1 2 --f 0.85 --host 127.0.0.1 --port 30001"
    )
    assert command.script == (
        "#!/bin/sh\nexport NCCL_ALGO=Ring\nexec ~/env/bin/python3 -m sglang.launch_server "
        "--model-path /models/kimi --tp 8 --trust-remote-code --sizes 1 2 --f 0.85 "
        "--host 127.0.0.1 --port 30001\n"
    )


@pytest.mark.parametrize(
    ("known", "flag"),
    [
        (frozenset(), "--cuda-graph-max-bs"),
        ({"cuda_graph_max_bs", "tp_size"}, "--cuda-graph-max-bs"),
        ({"cuda_graph_max_bs_decode", "tp_size"}, "--cuda-graph-max-bs-decode"),
        ({"tp_size"}, "--cuda-graph-max-bs"),
    ],
)
def test_a_flag_goes_by_the_name_that_the_target_knows(known: set[str], flag: str):
    configuration = ServerConfiguration("m", {"cuda_graph_max_bs": 64})
    command = command_line(configuration, "p", LAUNCH, known_flags=frozenset(known))
    assert command.argv[5:7] == (flag, "64")


def test_short_names_of_parallelism_are_resolved():
    known = frozenset({"tp_size", "data_parallel_size", "ep"})
    names = ("tp", "dp", "ep", "pp", "never_heard_of")
    resolved = [resolve_flag(name, known) for name in names]
    assert resolved == ["tp_size", "data_parallel_size", "ep", "pp", "never_heard_of"]


def test_the_script_starts_exactly_that(dumping: str, tmp_path: Path):
    command = CommandLine((dumping, *NASTY), {f"V{n}": text for n, text in enumerate(NASTY)})
    script = tmp_path / "cmd.sh"
    script.write_text(command.script)
    script.chmod(0o755)
    for program in ([str(script)], ["/bin/sh", str(script)]):
        argv, env = dumped(program)
        assert argv == list(command.argv)
        assert without_ours(env) == command.env


def test_the_line_to_paste_starts_exactly_that(dumping: str):
    command = CommandLine((dumping, *NASTY), {f"V{n}": text for n, text in enumerate(NASTY)})
    argv, env = dumped(["/bin/sh", "-c", command.shell])
    assert argv == list(command.argv)
    assert without_ours(env) == command.env


def test_a_home_is_left_to_the_shell_that_it_is_pasted_into(dumping: str, tmp_path: Path):
    (tmp_path / "my env").mkdir()
    (tmp_path / "my env" / "python3").symlink_to(dumping)
    command = CommandLine(("~/my env/python3", "~/models/a b"), {"CUDA_HOME": "~/cuda 13"})
    argv, env = dumped(["/bin/sh", "-c", command.shell], home=str(tmp_path))
    assert argv == [f"{tmp_path}/my env/python3", f"{tmp_path}/models/a b"]
    assert env["CUDA_HOME"] == f"{tmp_path}/cuda 13"


TEXT = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12
).filter(lambda text: not text.startswith("~/"))


@settings(max_examples=25, deadline=None)
@given(words=st.lists(TEXT, max_size=4), value=TEXT)
def test_any_text_survives_the_shell(dumping: str, words: list[str], value: str):
    command = CommandLine((dumping, *words), {"V": value})
    argv, env = dumped(["/bin/sh", "-c", command.script])
    assert argv == list(command.argv)
    assert env["V"] == value
