"""What the documentation tells people to type exists as it is written."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.cli import app
from settings.application import Settings
from settings.host import Host
from settings.sweep import Sweep
from settings.sweep_file import parse_sweep, read_sweep
from settings.workload import Workload

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted((PROJECT / "docs").glob("*.md")),
]


def blocks(language: str) -> list[tuple[str, str]]:
    fence = re.compile(rf"^[ ]*```{language}\n(.*?)^[ ]*```", re.M | re.S)
    return [(page.name, body) for page in PAGES for body in fence.findall(page.read_text())]


def commands() -> list[tuple[str, str]]:
    lines = [(page, line.strip()) for page, body in blocks("sh") for line in body.splitlines()]
    for page in PAGES:
        lines += [
            (page.name, text)
            for text in re.findall(r"`((?:sglang-sweep|make) [^`]+)`", page.read_text())
        ]
    return [(page, line.partition("#")[0].strip()) for page, line in lines if line]


@pytest.mark.parametrize(
    ("page", "line"), [c for c in commands() if c[1].startswith("sglang-sweep")]
)
def test_each_sglang_sweep_command_is_understood(page, line):
    words = shlex.split(line)[1:]
    app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(("page", "line"), [c for c in commands() if c[1].startswith("make")])
def test_each_make_target_exists(page, line):
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.M)
    for word in shlex.split(line)[1:]:
        assert "=" in word or word in targets


@pytest.mark.parametrize(
    ("page", "body"), [b for b in blocks("yaml") if b[1].lstrip().startswith("name:")]
)
def test_each_sweep_file_is_valid(page, body):
    parse_sweep(YAML(typ="safe").load(textwrap.dedent(body)), page)


@pytest.mark.parametrize(
    "path", sorted((PROJECT / "examples").glob("*.yaml")), ids=lambda p: p.name
)
def test_each_example_is_valid(path):
    read_sweep(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_each_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_key_of_the_sweep_file_and_of_the_settings_is_documented():
    text = (PROJECT / "docs" / "sweep-file.md").read_text()
    for model in (Sweep, Workload, Settings, Host):
        for name in model.model_fields:
            if name != "hosts":
                assert re.search(rf"[`.]{name}[`.\[]", text), f"{model.__name__}.{name}"
