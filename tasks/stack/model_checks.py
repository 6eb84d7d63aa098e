"""Judge the models that a sweep names: there, whole, readable, known, and fit for each other."""

from collections.abc import Iterator

from settings.sweep import Sweep
from tasks.domain.facts import Finding, ModelFacts, Severity, StackFacts
from tasks.domain.sglang import RENAMED_FLAGS

_WITHOUT_WEIGHTS = ("dummy",)
_SHRINKING = ("quantization", "cpu_offload_gb", "torchao_config", "load_format", "nnodes")


def check_models(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """A draft model that is unfit costs the speculating trials only, so it is a warning."""
    if sweep is None:
        return
    for model in facts.models:
        draft = model.path != sweep.server.model_path
        key = "speculative.draft_model_path" if draft else "server.model_path"
        severity = Severity.WARNING if draft else Severity.ERROR
        if not model.there:
            yield from _absent(model, key, severity, facts)
            continue
        if sweep.server.args.get("load_format") not in _WITHOUT_WEIGHTS:
            # What of a hub's model is missing is downloaded, where that is allowed.
            mended = model.hub and not _offline(facts)
            yield from _weights(model, key, Severity.WARNING if mended else severity)
        yield from _code(model, key, sweep)
    yield from _pair(facts, sweep)


def _absent(
    model: ModelFacts, key: str, severity: Severity, facts: StackFacts
) -> Iterator[Finding]:
    """A folder that isn't there; a model of the hub is downloaded, unless that is switched off."""
    if not model.hub:
        relative = not model.path.startswith(("/", "~"))
        yield Finding(
            severity,
            f"{key}: there is no {model.path} on the host",
            "",
            "write it from the root: a server runs in a folder of its own"
            if relative
            else "put the model there, or correct the path",
            "model-path-missing",
        )
    elif _offline(facts):
        yield Finding(
            severity,
            f"{key}: {model.path} is not in the hub's cache, and the hub may not be asked",
            "HF_HUB_OFFLINE=1",
            "download it first, or unset HF_HUB_OFFLINE",
            "hub-network",
        )
    else:
        yield Finding(
            Severity.INFO,
            f"{key}: {model.path} is not in the hub's cache: the first launch downloads it",
            "",
            "download it before the night: a download counts into the time to start",
            "hub-network",
        )


def _offline(facts: StackFacts) -> bool:
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(facts.env.get(name, "").lower() in ("1", "true", "yes", "on") for name in names)


def _weights(model: ModelFacts, key: str, severity: Severity) -> Iterator[Finding]:
    """Files that the index names, whole by their own headers, and readable for us."""
    if model.missing:
        yield Finding(
            severity,
            f"{key}: {len(model.missing)} of the shards that the index names are missing",
            f"{model.path}: {', '.join(model.missing[:3])}",
            "download or copy the model again",
            "weights-missing",
        )
    elif model.shards == 0 and not model.hub:
        yield Finding(
            Severity.WARNING,
            f"{key}: {model.path} holds no weights",
            "no file of safetensors, bin, pt, pth or gguf",
            "name the folder that holds the weights",
            "weights-missing",
        )
    if model.damaged:
        name, fault = next(iter(model.damaged.items()))
        others = f" (and {len(model.damaged) - 1} more files)" if len(model.damaged) > 1 else ""
        yield Finding(
            severity,
            f"{key}: {name}{others} is damaged",
            f"{model.path}/{name}: {fault}",
            "download or copy it again",
            "weights-corrupt",
        )
    if model.unreadable:
        yield Finding(
            severity,
            f"{key}: {', '.join(model.unreadable[:3])} can't be read",
            f"{len(model.unreadable)} files of {model.path}",
            "let the user that serves read it, or mend the link",
            "model-path-missing",
        )
    if model.unfinished and not model.shards:
        yield Finding(
            Severity.WARNING,
            f"{key}: the download of {model.path} was interrupted",
            f"{model.unfinished} unfinished files in the hub's cache",
            "download it before the night",
            "hub-network",
        )


def _code(model: ModelFacts, key: str, sweep: Sweep) -> Iterator[Finding]:
    """Whether SGLang and transformers know what the model says that it is."""
    config = model.config or {}
    own_code = bool(config.get("auto_map"))
    trusted = sweep.server.args.get("trust_remote_code") is True
    names = ", ".join(map(str, config.get("architectures", []))) or "no architecture"
    if model.served is False:
        yield Finding(
            Severity.WARNING,
            f"{key}: the installed SGLang has no code of its own for {names}",
            f"{model.path}/config.json",
            "update SGLang; it falls back to transformers, which is slower or fails",
            "model-arch-unsupported",
        )
    if model.known_type is False and not own_code:
        yield Finding(
            Severity.WARNING,
            f"{key}: the installed transformers doesn't know {config.get('model_type')!r}",
            f"written by transformers {config.get('transformers_version', 'unknown')}",
            "update transformers to the version that SGLang asks for",
            "transformers-too-old",
        )
    elif model.known_type is False and not trusted:
        yield Finding(
            Severity.WARNING,
            f"{key}: the model brings code of its own, which the sweep doesn't allow",
            f"auto_map in {model.path}/config.json, model_type {config.get('model_type')!r}",
            "look at that code, then set server.args.trust_remote_code: true",
            "trust-remote-code",
        )


def _pair(facts: StackFacts, sweep: Sweep) -> Iterator[Finding]:
    """A draft must speak the target's vocabulary, and EAGLE's take its hidden states."""
    by_path = {model.path: model.config for model in facts.models}
    target = by_path.get(sweep.server.model_path)
    draft = by_path.get(sweep.speculative.draft_model_path or "")
    if not target or not draft:
        return
    told = {"vocab_size": "a vocabulary of"}
    if sweep.speculative.algorithm.upper().startswith("EAGLE"):
        told["hidden_size"] = "hidden states of"
    for name, words in told.items():
        theirs = draft.get("target_hidden_size") if name == "hidden_size" else None
        wanted, has = target.get(name), theirs or draft.get(name)
        if wanted is not None and has is not None and wanted != has:
            yield Finding(
                Severity.WARNING,
                f"the draft model has {words} {has}, the model {wanted}",
                f"{name} of {sweep.speculative.draft_model_path}/config.json",
                "name a draft model that was made for this model",
                "spec-draft-mismatch",
            )
    yield from _algorithm(draft, sweep)


def _algorithm(draft: object, sweep: Sweep) -> Iterator[Finding]:
    """EAGLE-3 drafts and EAGLE drafts are not the same, and say which they are."""
    named = draft.get("architectures") if isinstance(draft, dict) else None
    names = [str(name) for name in named or []]
    algorithm = sweep.speculative.algorithm.upper()
    third = any("eagle3" in name.lower() for name in names)
    if algorithm in ("EAGLE", "EAGLE3") and names and third != (algorithm == "EAGLE3"):
        other = "EAGLE3" if third else "EAGLE"
        if third or any("eagle" in name.lower() for name in names):
            yield Finding(
                Severity.WARNING,
                f"speculative.algorithm is {algorithm}, the draft model is one of {other}",
                ", ".join(names),
                f"set speculative.algorithm: {other}, or name another draft model",
                "spec-draft-mismatch",
            )


def check_fit(facts: StackFacts, sweep: Sweep | None) -> Iterator[Finding]:
    """Weights that exceed the memory of the GPUs that they are spread over.

    Nothing is said where they change on the way (quantized while loading, kept on the CPU).
    """
    if sweep is None or not facts.gpus or any(sweep.server.args.get(n) for n in _SHRINKING):
        return
    model = next((m for m in facts.models if m.path == sweep.server.model_path), None)
    ranks = _size(sweep, "tp") * _size(sweep, "pp")
    memory = min(gpu.memory_total_mib for gpu in facts.gpus) << 20
    if model is not None and memory and model.bytes > ranks * memory:
        yield Finding(
            Severity.WARNING,
            f"the weights of {model.path} exceed the memory of {ranks} GPUs",
            f"{model.bytes / 2**30:.0f} GiB of weights, {ranks} x {memory / 2**30:.0f} GiB",
            "raise server.args.tp, or take a quantized model",
            "oom-weight-load",
        )


def _size(sweep: Sweep, name: str) -> int:
    """A parallel size by any of its names; the largest that an axis gives it."""
    size = 1
    for spelling in (name, *RENAMED_FLAGS[name]):
        values = [sweep.server.args.get(spelling), *sweep.axes.get(f"args.{spelling}", [])]
        size = max([size, *(value for value in values if isinstance(value, int))])
    return size
