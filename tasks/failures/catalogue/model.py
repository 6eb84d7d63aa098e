"""The model: where it is, whether this stack knows it, whether its files are whole."""

from tasks.domain.diagnosis import Action, Phase
from tasks.failures.catalogue.entry import Mode, Sign, Variant, Weight

_START = (Phase.START,)
_LOAD = (Phase.WEIGHTS,)
_PATH = r"'?(?:/|\./|\.\./|~)[^'\s]*'?"

_UNKNOWN_WEIGHT = r"KeyError: ['\"](?:\w+\.)+(?:\w+_)?(?:weight|bias|scale)\w*['\"]"

MODES = (
    Mode(
        "model-module-import-failed",
        "SGLang knows this model, but its module failed to import; the line that says why stands"
        " earlier in the log. Mend that import.",
        Action.STOP,
        _LOAD,
        (
            Sign(
                r"[Mm]odel architectures? \[?'(?P<arch>[A-Za-z]+\d*[A-Za-z]*?\d*)"
                r"(?:For\w+|LMHeadModel|Model)?'\]?.* (?:not supported|failed to be inspected)",
                near=r"(?i)Ignore import error when loading \S*\.<<arch>>:",
            ),
            Sign(r"Model architectures \[.*\] failed to be inspected"),
        ),
        stack_fault=True,
    ),
    Mode(
        "model-arch-unsupported",
        "This SGLang doesn't know the model's architecture. Use a newer SGLang.",
        Action.STOP,
        _LOAD,
        (
            Sign(
                r"[Mm]odel architectures? .* (?:is|are) not supported|has no (?i:sglang)"
                r" implementation|Cannot find model module|Unsupported (?:model )?architectures?:"
                r"|No supported (?:model )?arch",
                raised=True,
            ),
            Sign(_UNKNOWN_WEIGHT, near=r"in load_weights\b|params_dict\["),
        ),
        variants=(
            Variant(
                "",
                Action.STOP,
                explanation="The checkpoint has a weight that this SGLang's code for the model"
                " doesn't know, most often one of its quantization. Use a newer SGLang, or another"
                " quantization of the model.",
                line=_UNKNOWN_WEIGHT,
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "transformers-too-old",
        "This Transformers doesn't know the model's type. Take a stack whose SGLang supports the"
        " model, or the model's converted repository; SGLang pins Transformers.",
        Action.STOP,
        _START,
        (
            Sign(r"does not recognize this architecture"),
            Sign(r"cannot import name '\w+' from 'transformers[\w.]*'", raised=True),
            Sign(r"No module named 'transformers\.\w+"),
            Sign(
                r"(?:requires?|needs?|upgrade) (?:`?transformers`?)\s?(?:version )?\W*[>=]"
                r"|transformers[>= ]+[\d.]+\S* is required",
                raised=True,
            ),
            Sign(
                r"Unrecognized configuration class|Tokenizer class \w+ does not exist", raised=True
            ),
        ),
        stack_fault=True,
    ),
    Mode(
        "trust-remote-code",
        "The model brings its own code, which runs only with --trust-remote-code. That is a"
        " person's decision: add trust_remote_code to the server's args if you trust it.",
        Action.STOP,
        _START,
        (
            Sign(r"contains custom code which must be executed"),
            Sign(
                r"trust_remote_code=True|--trust-remote-code",
                near=r"custom code|remote code",
                raised=True,
            ),
        ),
    ),
    Mode(
        "model-path-missing",
        "The model's folder or repository doesn't exist, or holds no config.json. Correct"
        " model_path.",
        Action.STOP,
        _START,
        (
            Sign(rf"Repo id must (?:be in the form|use alphanumeric)[^:]*: {_PATH}"),
            Sign(
                rf"Can't load the (?:configuration|config|model|tokenizer) (?:of|for) {_PATH}",
            ),
            Sign(
                r"is not a (?:local folder|valid model identifier)"
                r"|Incorrect path_or_model_id|RepositoryNotFoundError|Repository Not Found for url",
            ),
            Sign(
                rf"(?:No such file or directory|FileNotFoundError).*{_PATH}(?:/config\.json|/"
                r"tokenizer\S*)",
            ),
            Sign(
                r"does not appear to have a file named config\.json|(?:[Mm]odel path|model"
                r" directory|[Pp]ath) \S+ (?:does not exist|not found)",
                raised=True,
            ),
            Sign(r"Unrecognized model in \S+\. Should have a `model_type`"),
        ),
    ),
    Mode(
        "weights-corrupt",
        "A weight file is cut short or damaged, often by a full disk or a broken download."
        " Download it again.",
        Action.STOP,
        _LOAD,
        (
            Sign(
                r"SafetensorError|MetadataIncompleteBuffer|InvalidHeader|HeaderTooLarge"
                r"|HeaderTooSmall|InvalidHeaderDeserialization|header too large",
            ),
            Sign(
                r"PytorchStreamReader failed|invalid load key|unexpected EOF, expected"
                r"|UnpicklingError|file in archive is not in a subdirectory",
            ),
            Sign(
                r"(?:safetensors|checkpoint|shard)\S* (?:file )?is (?:incomplete|corrupt\w*)",
                raised=True,
            ),
        ),
    ),
    Mode(
        "weights-missing",
        "The model's folder holds no weights, or a shard of them is missing. Download the whole"
        " model.",
        Action.STOP,
        _LOAD,
        (
            Sign(
                r"Cannot find any model weights|no file named (?:pytorch_model|model)\S*"
                r"|Error no file named|No (?:safetensors|model|weight) (?:weights? )?files? found",
            ),
            Sign(r"No such file or directory: \"?'?\S*\.(?:safetensors|bin|pt|gguf)\b"),
            Sign(
                r"[Mm]issing (?:shard|weight file|safetensors)|not all (?:shards|weights)",
                raised=True,
            ),
        ),
    ),
    Mode(
        "warmup-failed",
        "The server came up but could not answer its first request; the traceback in the log says"
        " why.",
        Action.STOP,
        (Phase.WARMUP,),
        (
            Sign(r"Initialization failed\. warmup error", weight=Weight.SYMPTOM),
            Sign(r"warmup error:|[Ww]armup (?:request )?failed", weight=Weight.SYMPTOM),
        ),
        stack_fault=True,
        vague=True,
    ),
)
