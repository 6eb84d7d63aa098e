"""Speculative decoding: draft models, kernels, page size, top-k."""

from tasks.domain.diagnosis import Action, Phase
from tasks.failures.catalogue.entry import Mode, Sign, Spread

_START = (Phase.START,)
_SPEC_FLAGS = ("speculative_*", "enable_multi_layer_eagle")
_SPEC = Spread(decided_by=(*_SPEC_FLAGS, "*attention_backend", "page_size"))
_DRAFT = Spread(decided_by=_SPEC_FLAGS)
_DRAFT_WEIGHT = (
    r"(?:embed_tokens|lm_head|fc|midlayer|d2t|t2d|hot_token_id|eagle\w*|draft\w*|mtp\w*)"
)
_DRAFT_CODE = r"/speculative/|in init_draft|draft_worker|eagle_worker|models/\w*eagle\w*\.py"
_SPEC_FUNCTION = r"\w*(?:tree|eagle|speculat|draft|reconstruct|ngram|verify)\w*"

_NO_DRAFT = r"speculative_algorithm['\"]?[=:] ?None"
"""What the launch's own line says where nothing is drafted."""

MODES = (
    Mode(
        "spec-kernel-missing",
        "The kernel package lacks what speculative decoding needs: it is older than this SGLang."
        " Install the version that SGLang asks for.",
        Action.STOP,
        (Phase.WEIGHTS, Phase.SERVING),
        (
            Sign(r"NameError: name '(?:sgl_)?" + _SPEC_FUNCTION + r"' is not defined"),
            Sign(
                r"No module named 'sgl_kernel\.speculative|cannot import name '"
                + _SPEC_FUNCTION
                + r"' from 'sgl_kernel",
            ),
            Sign(r"'_OpNamespace' 'sgl_kernel' object has no attribute '" + _SPEC_FUNCTION),
        ),
        stack_fault=True,
    ),
    Mode(
        "kernel-package-outdated",
        "The kernel package lacks a function that this SGLang asks for. Install the version of"
        " sgl-kernel (sglang-kernel) that SGLang pins.",
        Action.STOP,
        (Phase.START, Phase.WEIGHTS, Phase.SERVING),
        (
            Sign(
                r"cannot import name '\w+' from 'sgl_kernel|No module named 'sgl_kernel",
                raised=True,
            ),
            Sign(r"'_OpNamespace' 'sgl_kernel' object has no attribute"),
            Sign(r"NameError: name 'sgl_\w+' is not defined"),
        ),
        stack_fault=True,
    ),
    Mode(
        "spec-page-size",
        "This attention backend can't combine a speculative top-k above 1 with a page size above"
        " 1. Use page_size 1, top-k 1 or another backend.",
        Action.PRUNE,
        _START,
        (
            Sign(
                r"speculative_eagle_topk ?> ?1 (?:with|and) page_size ?> ?1|page_size.*(?:topk|"
                r"speculative)|(?:speculative|EAGLE|eagle)\S* .*page[_ -]size",
                raised=True,
            ),
        ),
        spread=_SPEC,
    ),
    Mode(
        "spec-topk-unsupported",
        "This backend supports speculation only with top-k 1. Use speculative_eagle_topk 1 or"
        " another backend.",
        Action.PRUNE,
        _START,
        (
            Sign(
                r"only supports? (?:\w+_)?top_?k ?={1,2} ?1|top_?k ?> ?1 (?:is )?not (?:yet )?"
                r"supported|does(?:n't| not) support (?:\w+ )*top_?k ?> ?1"
                r"|speculative_eagle_topk (?:must|should|has to) be 1",
                raised=True,
            ),
        ),
        spread=_SPEC,
    ),
    Mode(
        "spec-draft-mismatch",
        "The draft model doesn't fit the target or this version (weights, vocabulary or methods"
        " don't match). Name the draft that belongs to this model, or leave speculation out.",
        Action.PRUNE,
        (Phase.WEIGHTS, Phase.SERVING, Phase.GRAPH_CAPTURE),
        (
            Sign(
                r"KeyError: ['\"](?:model\.)?" + _DRAFT_WEIGHT + r"\.(?:\w+\.)*(?:weight|bias)"
                r"|KeyError: ['\"](?:d2t|t2d|hot_token_id)['\"]",
                away=_NO_DRAFT,
            ),
            Sign(
                r"KeyError: ['\"](?:\w+\.)+(?:weight|bias)\w*['\"]",
                near=_DRAFT_CODE,
            ),
            Sign(
                r"object has no attribute '(?:set_embed\w*|get_embed_and_head"
                r"|set_eagle3?_\w+|hot_token_id|capture_aux_hidden_states|load_lm_head\w*)'",
            ),
            Sign(
                r"\bAssertionError\b",
                near=rf"(?:{_DRAFT_CODE})(?:.*\n){{1,8}}.*assert\b.*loaded_weight.*\n.*AssertionError",
            ),
            # Token ids beyond the embedding: with speculation, the draft's vocabulary is another.
            Sign(
                r"Assertion `srcIndex < srcSelectDimSize` failed",
                away=_NO_DRAFT,
            ),
            Sign(
                r"(?:draft|Draft)\b.*(?:vocab|mismatch|does not match|doesn't match"
                r"|not (?:compatible|supported))|(?:(?:size|shape) mismatch|must match).*draft",
                raised=True,
            ),
            Sign(
                r"size mismatch|shape '\[|The size of tensor a|mat1 and mat2 shapes",
                near=_DRAFT_CODE,
                raised=True,
            ),
            Sign(r"speculative_draft_model_path|speculative-draft-model-path", raised=True),
        ),
        spread=_DRAFT,
    ),
)
