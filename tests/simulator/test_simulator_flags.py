"""The command line refuses what SGLang's refuses, in the same words."""

import json
import re

import pytest

from simulator.distill import distil, render
from simulator.flags import Configuration, load_facts, parse, server_args


def flags(text: str, version: str = "0.5.9") -> Configuration:
    return parse(f"--model-path m {text}".split(), version)


def refusal(text: str, capsys: pytest.CaptureFixture[str], version: str = "0.5.9") -> str:
    with pytest.raises(SystemExit) as refused:
        flags(text, version)
    assert refused.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"usage: {'launch_server.py' if version == '0.5.9' else 'sglang serve'}"
    )
    return error.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--foo", "launch_server.py: error: unrecognized arguments: --foo"),
        ("--attention-backend nosuch", "argument --attention-backend: invalid choice: 'nosuch'"),
        ("--port high", "argument --port: invalid int value: 'high'"),
        ("--port", "argument --port: expected one argument"),
        ("--speculative-nmu-steps 3", "unrecognized arguments: --speculative-nmu-steps 3"),
        ("--cuda-graph 8", "ambiguous option: --cuda-graph could match"),
    ],
)
def test_what_sglang_refuses(text: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refusal(text, capsys)


def test_a_missing_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([])
    assert "required: --model-path/--model" in capsys.readouterr().err


def test_a_renamed_flag_is_ambiguous_in_the_later_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert flags("--cuda-graph-max-bs 64").cuda_graph_max_bs == 64
    words = refusal("--cuda-graph-max-bs 64", capsys, "0.5.23")
    assert "ambiguous option: --cuda-graph-max-bs could match" in words
    assert flags("--cuda-graph-max-bs-decode 64", "0.5.23").cuda_graph_max_bs == 64


def test_negated_switches_of_the_later_version() -> None:
    on = flags("--enable-tf32-matmul", "0.5.23").arguments["enable_tf32_matmul"]
    off = flags("--no-enable-tf32-matmul", "0.5.23").arguments["enable_tf32_matmul"]
    assert (on, off) == (True, False)


def test_aliases_and_prefixes_set_the_same_argument() -> None:
    spellings = ("--tp 8", "--tp-size 8", "--tensor-parallel-size 8", "--tensor 8")
    assert {flags(spelling).tp_size for spelling in spellings} == {8}


def test_what_sglang_fills_in() -> None:
    plain = flags("")
    assert plain.cuda_graph_max_bs == plain.arguments["cuda_graph_max_bs"] == 512
    assert plain.speculation is None
    draft = flags("--speculative-algorithm EAGLE3").speculation
    assert draft
    assert (draft.steps, draft.topk, draft.draft_tokens) == (3, 1, 4)
    assert flags("--disable-cuda-graph").cuda_graph_max_bs == 0


def test_server_args_are_rendered_as_a_call() -> None:
    text = server_args(flags("--tp 8").arguments)
    assert text.startswith("ServerArgs(model_path='m', tokenizer_path='m', ")
    assert "tp_size=8, " in text


def test_an_unknown_version_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"choose one of 0\.5\.23, 0\.5\.9"):
        flags("", "0.1")


def test_help_lists_every_flag(simulator) -> None:
    run = simulator.program("simulator.launch_server", "--help")
    assert run.returncode == 0
    names = {name for flag in load_facts("0.5.9")["flags"] for name in flag["names"]}
    assert len(names) > 330
    assert names - set(re.findall(r"(?:^  |, )(--[\w-]+)", run.stdout, re.MULTILINE)) == set()


def test_facts_are_distilled_from_help_text() -> None:
    text = (
        "usage: launch_server.py [-h] --model-path MODEL_PATH\n\noptions:\n"
        "  -h, --help            show this help message and exit\n"
        "  --model-path MODEL_PATH, --model MODEL_PATH\n"
        "                        The path. See --port.\n"
        "  --tensor-parallel-size TENSOR_PARALLEL_SIZE, --tp-size TENSOR_PARALLEL_SIZE\n"
        "  --bs BS [BS ...]      Sizes.\n"
        "  --checksum [CHECKSUM]\n"
        "  --level {0,1}         A level.\n"
        "  --quiet               Say less.\n"
    )
    info = {"version": "9", "model_path": "x", "tp_size": 1, "level": 0, "bs": None}
    facts = distil(text, info)
    assert facts["prog"] == "launch_server.py"
    by_name = {flag["names"][0]: flag for flag in facts["flags"]}
    assert by_name["--tensor-parallel-size"]["sets"] == "tp_size"
    assert by_name["--tensor-parallel-size"]["type"] == "int"
    assert by_name["--bs"]["nargs"] == "+"
    assert by_name["--checksum"]["nargs"] == "?"
    assert by_name["--level"]["choices"] == [0, 1]
    assert by_name["--quiet"]["nargs"] == "0"
    assert json.loads(render(facts)) == facts
