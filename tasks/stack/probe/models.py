"""A model's folder: is it whole, readable, and what does it say that it is?"""

from __future__ import annotations

import glob
import json
import os
import re
import struct
from functools import partial

from .jobs import Json, attempt
from .packages import find

WEIGHTS = ("safetensors", "bin", "pt", "pth", "gguf")
READ = (*WEIGHTS, "json", "model", "tiktoken", "py")
KEPT = (
    *("architectures", "model_type", "vocab_size", "draft_vocab_size", "hidden_size"),
    *("target_hidden_size", "transformers_version", "num_hidden_layers", "auto_map"),
)
MOST_HEADER_BYTES = 100 << 20
"""What the safetensors library itself takes for a header at most."""


def model_facts(path: str) -> Json:
    """Everything that can be known of a model without reading its weights."""
    folder = os.path.expanduser(path)
    if not os.path.isdir(folder):
        return {"there": os.path.exists(folder)}
    config = read_json(f"{folder}/config.json")
    indexes = glob.glob(f"{glob.escape(folder)}/*.index.json")
    wanted = sorted({shard for index in indexes for shard in shards_of(index)})
    files = [f for kind in WEIGHTS for f in glob.glob(f"{glob.escape(folder)}/*.{kind}")]
    return {
        "there": True,
        "config": config_facts(config) if isinstance(config, dict) else None,
        "unreadable": sorted(os.path.basename(f) for f in needed(folder) if not readable(f)),
        "shards": len(files),
        "bytes": sum(attempt(partial(os.path.getsize, f)) or 0 for f in files),
        "missing": [name for name in wanted if not os.path.exists(f"{folder}/{name}")],
        "damaged": {
            os.path.basename(f): fault
            for f, fault in ((f, damage(f)) for f in sorted(files) if f.endswith(".safetensors"))
            if fault
        },
        "tokenizer": any(
            os.path.exists(f"{folder}/{name}")
            for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
        )
        or bool(
            glob.glob(f"{glob.escape(folder)}/*.tiktoken")
            + glob.glob(f"{glob.escape(folder)}/tiktoken*")
        ),
    }


def read_json(path: str) -> Json:
    """A JSON file; None where it isn't there or isn't one."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def shards_of(index: str) -> set[str]:
    """The files that an index spreads the weights over."""
    content = read_json(index)
    spread = content.get("weight_map") if isinstance(content, dict) else None
    return set(map(str, spread.values())) if isinstance(spread, dict) else set()


def needed(folder: str) -> list[str]:
    """The files of a folder that a server reads, links into nowhere included."""
    return [f for kind in READ for f in glob.glob(f"{glob.escape(folder)}/*.{kind}")]


def readable(path: str) -> bool:
    """Whether we may read a file; a link into nowhere can't be read either."""
    return os.access(path, os.R_OK)


def config_facts(config: Json) -> Json:
    """What of a model's configuration others depend on; that of its text part where it has one."""
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    told = {name: config.get(name, inner.get(name)) for name in KEPT}
    return {name: value for name, value in told.items() if value is not None}


def damage(path: str) -> str:
    """What is wrong with a safetensors file by its header; empty where nothing is.

    The file is 8 bytes of length, a JSON header, and the tensors; the header says where each ends.
    """
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= MOST_HEADER_BYTES:
                return "it has no header: an interrupted download, or a pointer of git-lfs"
            header = json.loads(file.read(length))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
    except OSError as error:
        return str(error.strerror)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return "its header is damaged or cut off"
    whole = 8 + length + max(ends, default=0)
    return f"{size} bytes of {whole}" if size < whole else ""


def hub_facts(name: str, cache: str) -> Json:
    """Whether the hub's cache on this machine holds a snapshot of a model."""
    folder = os.path.join(os.path.expanduser(cache), "models--" + name.replace("/", "--"))
    snapshot = f"{folder}/snapshots/{text(f'{folder}/refs/main').strip()}"
    unfinished = glob.glob(f"{glob.escape(folder)}/blobs/*.incomplete")
    whole = os.path.exists(f"{snapshot}/config.json")
    facts = model_facts(snapshot) if whole else {"there": False}
    return {**facts, "hub": True, "unfinished": len(unfinished)}


def known_to(config: Json) -> Json:
    """Whether SGLang has code for an architecture, and transformers for a type, by their sources.

    None where there are no sources to look into.
    """
    architectures = config.get("architectures") or []
    sglang = f"{os.path.dirname(find('sglang') or '/')}/srt"
    models = glob.glob(f"{sglang}/models/*.py")
    names = "|".join(re.escape(str(name)) for name in architectures)
    pattern = re.compile(rf"^class ({names})\b", re.MULTILINE)
    served = any(pattern.search(text(path)) for path in models) if names and models else None
    auto = os.path.dirname(find("transformers") or "/") + "/models/auto/"
    theirs = "".join(map(text, [f"{auto}configuration_auto.py", f"{auto}auto_mappings.py"]))
    # SGLang teaches transformers some types itself.
    own = [*glob.glob(f"{sglang}/configs/*.py"), f"{sglang}/utils/hf_transformers_utils.py"]
    listed = theirs and theirs + "".join(map(text, own))
    kind = config.get("model_type")
    return {
        "sglang": served,
        "transformers": f'"{kind}"' in listed if kind and listed else None,
    }


def text(path: str) -> str:
    """A source file's text; empty where it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def ask_model(path: str, cache: str) -> Json:
    """The facts of a model, by its folder or by its name on the hub."""
    local = path.startswith(("/", "~", "."))
    facts = model_facts(path) if local else hub_facts(path, cache)
    config = facts.get("config")
    return {**facts, "known": known_to(config)} if config else facts
