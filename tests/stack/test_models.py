"""Models: whole, readable, known to the stack, and a draft that fits its target."""

import json
import os
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.facts import Finding, ModelFacts, Severity, StackFacts
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.gather import gather_facts
from tasks.stack.probe.models import ask_model, hub_facts, model_facts
from tests.stack.factory import KIMI, SOUND, sweep
from tests.stack.pretend import Environment

PROJECT = Path(__file__).parents[2]


def shard(path: Path, *, lacking: int = 0) -> None:
    """Write a safetensors file of one tensor, and cut bytes off its end."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    whole = struct.pack("<Q", len(header)) + header + b"\1" * 64
    path.write_bytes(whole[: len(whole) - lacking])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of two shards with their index."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "text_config": {"vocab_size": 512}}
    (folder / "config.json").write_text(json.dumps(config))
    names = ["model-1.safetensors", "model-2.safetensors"]
    index = {"weight_map": dict(zip("ab", names, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names:
        shard(folder / name)
    return folder


def test_a_whole_model(model: Path) -> None:
    facts = model_facts(str(model))
    assert (facts["shards"], facts["missing"], facts["damaged"]) == (2, [], {})
    assert facts["config"] == {"architectures": ["LlamaForCausalLM"], "vocab_size": 512}
    assert facts["bytes"] == 2 * os.path.getsize(model / "model-1.safetensors")


def test_a_shard_that_is_missing_and_one_that_is_cut_off(model: Path) -> None:
    (model / "model-1.safetensors").unlink()
    shard(model / "model-2.safetensors", lacking=10)
    facts = model_facts(str(model))
    assert facts["missing"] == ["model-1.safetensors"]
    size = os.path.getsize(model / "model-2.safetensors")
    assert facts["damaged"] == {"model-2.safetensors": f"{size} bytes of {size + 10}"}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "it has no header"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "it has no header"),
        (struct.pack("<Q", 30) + b'{"w": {"dtype"', "its header is damaged"),
        (struct.pack("<Q", 6) + b'{"w":1', "its header is damaged"),
        (struct.pack("<Q", 7) + b'{"w":1}', "its header is damaged"),
    ],
)
def test_files_that_are_no_safetensors(model: Path, content: bytes, fault: str) -> None:
    (model / "model-1.safetensors").write_bytes(content)
    (said,) = model_facts(str(model))["damaged"].values()
    assert said.startswith(fault)


def test_a_link_into_nowhere_can_not_be_read(model: Path) -> None:
    (model / "tokenizer.json").symlink_to(model / "gone")
    assert model_facts(str(model))["unreadable"] == ["tokenizer.json"]


def test_the_hub_s_cache(model: Path, tmp_path: Path) -> None:
    assert hub_facts("org/name", str(tmp_path)) == {"there": False, "hub": True, "unfinished": 0}
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    (tmp_path / "models--org--name" / "refs").mkdir()
    (tmp_path / "models--org--name" / "refs" / "main").write_text("abc\n")
    model.rename(snapshot)
    facts = hub_facts("org/name", str(tmp_path))
    assert (facts["there"], facts["shards"]) == (True, 2)


def test_what_is_no_model(tmp_path: Path) -> None:
    assert ask_model(str(tmp_path / "no"), "/no") == {"there": False}
    (tmp_path / "config.json").write_text("[1]")
    facts = ask_model(str(tmp_path), "/no")
    assert (facts["there"], facts["config"], facts["shards"]) == (True, None, 0)


def ask_model_of(environment: Environment, model: Path) -> object:
    """What the environment's own interpreter says that it knows of a model."""
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from tasks.stack.probe.models import ask_model\n"
        "print(json.dumps(ask_model(sys.argv[2], '/no')['known']))\n"
    )
    command = [str(environment.python), "-c", program, str(PROJECT), str(model)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


async def test_the_probe_looks_at_models_and_their_code(
    host: Host, broken: Environment, model: Path
) -> None:
    broken.module("sglang", "")
    broken.module("sglang.srt.models", "")
    code = broken.site / "sglang" / "srt" / "models" / "llama.py"
    code.write_text("class OtherForCausalLM:\n    pass\n")
    plan = sweep(server={"model_path": str(model)})
    (facts,) = (await gather_facts(host, str(broken.python), plan)).models
    assert (facts.path, facts.shards, facts.served) == (str(model), 2, False)
    code.write_text("class LlamaForCausalLM(Module):\n    pass\n")
    broken.module("transformers", "")
    broken.module("transformers.models.auto", "")
    broken.module("sglang.srt.configs", 'model_type = "own"\n')
    auto = broken.site / "transformers" / "models" / "auto" / "configuration_auto.py"
    auto.write_text('NAMES = {"llama": "LlamaConfig"}\n')
    for kind, known in (("llama", True), ("own", True), ("new", False)):
        config = {"architectures": ["LlamaForCausalLM"], "model_type": kind}
        (model / "config.json").write_text(json.dumps(config))
        asked = ask_model_of(broken, model)
        assert asked == {"sglang": True, "transformers": known}


def judged(*models: ModelFacts, facts: StackFacts = SOUND, **changes: object) -> list[Finding]:
    return list(check_stack(replace(facts, models=models), sweep(**changes)))


@pytest.mark.parametrize(
    ("changes", "severity", "mode"),
    [
        ({"missing": ("model-3.safetensors",)}, Severity.ERROR, "weights-missing"),
        ({"damaged": {"model-3.safetensors": "8 bytes of 9"}}, Severity.ERROR, "weights-corrupt"),
        ({"unreadable": ("config.json",)}, Severity.ERROR, "model-path-missing"),
        ({"shards": 0}, Severity.WARNING, "weights-missing"),
        ({"served": False}, Severity.WARNING, "model-arch-unsupported"),
        ({"known_type": False}, Severity.WARNING, "transformers-too-old"),
        ({"served": None, "known_type": None}, None, None),
    ],
)
def test_a_model_that_can_not_be_served(
    changes: dict[str, object], severity: Severity | None, mode: str | None
) -> None:
    found = judged(replace(KIMI, **changes))  # type: ignore[arg-type]
    assert [(f.severity, f.mode) for f in found] == ([(severity, mode)] if severity else [])


def test_weights_that_are_not_asked_for() -> None:
    args = {"tp": 8, "load_format": "dummy"}
    server = {"model_path": "/models/kimi", "args": args}
    assert [f.mode for f in judged(replace(KIMI, shards=0), server=server)] == ["flag-unknown"]


def test_code_that_a_model_brings() -> None:
    own = replace(KIMI, known_type=False, config={**(KIMI.config or {}), "auto_map": {"a": "b"}})
    assert [f.mode for f in judged(own)] == ["trust-remote-code"]
    trusting = {"model_path": "/models/kimi", "args": {"tp": 8, "trust_remote_code": True}}
    assert judged(own, server=trusting) == []


def test_a_snapshot_that_is_not_whole_is_completed_unless_the_hub_may_not_be_asked() -> None:
    part = replace(KIMI, path="org/name", hub=True, missing=("model-3.safetensors",))
    server = {"model_path": "org/name", "args": {"tp": 8}}
    assert [f.severity for f in judged(part, server=server)] == [Severity.WARNING]
    offline = replace(SOUND, env={"TRANSFORMERS_OFFLINE": "1"})
    assert [f.severity for f in judged(part, facts=offline, server=server)] == [Severity.ERROR]


def test_the_hub_that_may_not_be_asked() -> None:
    absent = ModelFacts("org/name", False, hub=True)
    server = {"model_path": "org/name", "args": {"tp": 8}}
    offline = replace(SOUND, env={"HF_HUB_OFFLINE": "1"})
    (finding,) = judged(absent, facts=offline, server=server)
    assert (finding.severity, finding.mode) == (Severity.ERROR, "hub-network")
    (finding,) = judged(absent, server=server)
    assert finding.severity is Severity.INFO


DRAFT = ModelFacts(
    "/models/draft",
    True,
    config={
        "architectures": ["LlamaForCausalLMEagle3"],
        "vocab_size": 163_840,
        "draft_vocab_size": 32_000,
        "hidden_size": 7168,
    },
    shards=1,
)


@pytest.mark.parametrize(
    ("changes", "algorithm", "said"),
    [
        ({}, "EAGLE3", ""),
        ({"vocab_size": 151_936}, "EAGLE3", "a vocabulary of 151936, the model 163840"),
        ({"hidden_size": 4096}, "EAGLE3", "hidden states of 4096"),
        ({"hidden_size": 4096, "target_hidden_size": 7168}, "EAGLE3", ""),
        ({"hidden_size": 4096, "architectures": ["LlamaForCausalLM"]}, "STANDALONE", ""),
        ({}, "EAGLE", "the draft model is one of EAGLE3"),
        ({"architectures": ["LlamaForCausalLMEagle"]}, "EAGLE3", "one of EAGLE"),
    ],
)
def test_a_draft_and_its_target(changes: dict[str, object], algorithm: str, said: str) -> None:
    draft = replace(DRAFT, config={**(DRAFT.config or {}), **changes})
    how = {"algorithm": algorithm, "draft_model_path": "/models/draft"}
    found = judged(KIMI, draft, speculative=how)
    assert [(f.severity, f.mode) for f in found] == (
        [(Severity.WARNING, "spec-draft-mismatch")] if said else []
    )
    assert all(said in finding.summary for finding in found)
