"""The launch options of two real versions, and argparse's other ways of writing."""

from pathlib import Path

import pytest

from tasks.domain.facts import Flag
from tasks.stack.help_text import parse_help

DATA = Path(__file__).parent / "data"


def options(version: str) -> dict[str, Flag]:
    flags = parse_help((DATA / f"help-{version}.txt").read_text())
    return {name: flag for flag in flags for name in flag.names}


@pytest.mark.parametrize(("version", "count", "names"), [("0.5.9", 332, 342), ("0.5.23", 533, 561)])
def test_every_option_of_a_real_version(version: str, count: int, names: int) -> None:
    text = (DATA / f"help-{version}.txt").read_text()
    assert len(parse_help(text)) == count
    assert len(options(version)) == names


def test_names_values_and_choices() -> None:
    known = options("0.5.9")
    assert known["tp_size"].names == ("tensor_parallel_size", "tp_size")
    assert known["trust_remote_code"] == Flag(("trust_remote_code",), False, False)
    assert known["model_checksum"] == Flag(("model_checksum",), True, False)
    assert known["speculative_algorithm"].choices == (
        "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM",
    )  # fmt: skip
    assert known["schedule_policy"].choices[:2] == ("lpm", "random")
    assert known["cuda_graph_bs"] == Flag(("cuda_graph_bs",), True, True)
    assert known["lora_target_modules"].needs_value is False
    assert known["lora_target_modules"].choices[0] == "q_proj"
    assert known["attention_backend"].needs_value


def test_the_flag_that_was_split() -> None:
    assert "cuda_graph_max_bs" in options("0.5.9")
    assert "cuda_graph_max_bs" not in options("0.5.23")
    assert {"cuda_graph_max_bs_decode", "cuda_graph_max_bs_prefill"} <= options("0.5.23").keys()


def test_a_switch_with_its_negation() -> None:
    assert options("0.5.23")["no_enable_tf32_matmul"] == Flag(
        ("enable_tf32_matmul", "no_enable_tf32_matmul"), False, False
    )


def test_python_3_13_writes_the_value_once_and_3_9_another_heading() -> None:
    newest = "usage: x\n\noptions:\n  -h, --help  show\n  --tp-size, --tensor-parallel-size N\n"
    oldest = "usage: x\n\noptional arguments:\n  -q, --quick {a,b}\n                  more --text\n"
    assert parse_help(newest)[1] == Flag(("tp_size", "tensor_parallel_size"), True, True)
    assert parse_help(oldest) == (Flag(("quick",), True, True, ("a", "b")),)


@pytest.mark.parametrize("text", ["", "usage: x [-h]\n", "Traceback (most recent call last):\n"])
def test_what_is_no_help_has_no_options(text: str) -> None:
    assert parse_help(text) == ()
