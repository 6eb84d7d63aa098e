"""NCCL's variables: names, values, contradictions, interfaces."""

from dataclasses import replace

import pytest

from tasks.domain.facts import Severity, StackFacts
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.gather import gather_facts
from tests.stack.factory import SOUND, sweep
from tests.stack.pretend import Environment, compile_shared


def told(env: dict[str, str], facts: StackFacts = SOUND, **changes: object) -> list[str]:
    plan = sweep(**changes) if changes else None
    found = check_stack(replace(facts, env=env), plan)
    assert {finding.severity for finding in found} <= {Severity.WARNING}
    return [finding.summary for finding in found]


def test_a_name_that_is_misspelt() -> None:
    (summary,) = told({"NCCL_ALGORITHM": "Ring", "NCCL_VERSION": "2.28.9", "NCCL_PROTO": "LL"})
    assert summary == "NCCL knows no variable NCCL_ALGORITHM"
    (finding,) = check_stack(replace(SOUND, env={"NCCL_BUFSIZE": "1"}), None)
    assert finding.fix == "did you mean 'NCCL_BUFFSIZE'?"
    (summary,) = told({}, axes={"env.NCCL_MAX_NCHANELS": ["8", "16"]})
    assert summary == "NCCL knows no variable NCCL_MAX_NCHANELS"


def test_the_library_s_own_word_counts_more_than_our_list() -> None:
    env = {"NCCL_ALGO": "Ring", "NCCL_BRAND_NEW": "1"}
    assert told(env, replace(SOUND, nccl_unknown=())) == []
    old = replace(SOUND, nccl_unknown=("NCCL_ALGO",))
    assert told(env, old) == ["NCCL knows no variable NCCL_ALGO"]


async def test_the_library_is_asked(host: Host, broken: Environment) -> None:
    library = broken.folder / "libnccl.so.2"
    source = broken.folder / "nccl.c"
    source.write_text('const char *names[] = {"NCCL_ALGO", "NCCL_ALGO_LONGER"};\n')
    compile_shared(source, library)
    broken.module("torch", f"import ctypes\nctypes.CDLL({str(library)!r})\n")
    env = {**host.settings.env, "NCCL_ALGO": "Ring", "NCCL_ALG": "Ring"}
    async with connect("here", host.settings.model_copy(update={"env": env})) as here:
        plan = sweep(axes={"env.NCCL_PROTO": ["LL"]})
        facts = await gather_facts(here, str(broken.python), plan)
    assert facts.loaded["torch"][-1] == str(library)
    assert facts.nccl_unknown == ("NCCL_ALG", "NCCL_PROTO")


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [
        ("NCCL_PROTO", "LL", True), ("NCCL_PROTO", "ll128,simple", True),
        ("NCCL_PROTO", "^LL128", True), ("NCCL_PROTO", "L128", False),
        ("NCCL_ALGO", "Ring", True), ("NCCL_ALGO", "rings", False),
        ("NCCL_ALGO", "allreduce:tree;broadcast:ring", True),
        ("NCCL_P2P_LEVEL", "SYS", True), ("NCCL_P2P_LEVEL", "5", True),
        ("NCCL_P2P_LEVEL", "ALL", False), ("NCCL_NTHREADS", "512", True),
        ("NCCL_NTHREADS", "500", False), ("NCCL_DEBUG", "INFO", True),
        ("NCCL_DEBUG", "DEBUG", False), ("NCCL_BUFFSIZE", "16777216", True),
    ],
)  # fmt: skip
def test_values(name: str, value: str, good: bool) -> None:
    found = told({name: value})
    assert found == [] if good else found[0].startswith(f"{name} is '{value}', where NCCL takes")


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"},
        {"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"},
        {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
        {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "NVLS"},
    ],
)
def test_contradictions(env: dict[str, str]) -> None:
    assert len(told(env)) == 1
    assert told(dict([env.popitem()])) == []


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", True), ("NCCL_SOCKET_IFNAME", "=eth", False),
        ("NCCL_SOCKET_IFNAME", "^docker", True), ("NCCL_SOCKET_IFNAME", "ib0,eth0", True),
        ("GLOO_SOCKET_IFNAME", "eth0", True), ("GLOO_SOCKET_IFNAME", "enp1s0", False),
    ],
)  # fmt: skip
def test_interfaces(name: str, value: str, good: bool) -> None:
    found = [f.mode for f in check_stack(replace(SOUND, env={name: value}), None)]
    assert found == ([] if good else ["hang-nccl-init" if name[0] == "N" else "dist-timeout"])
