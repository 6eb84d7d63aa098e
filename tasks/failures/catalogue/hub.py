"""The model hub, the disk and its permissions."""

from tasks.domain.diagnosis import Action, Need, Phase, Remedy, Requirement
from tasks.failures.catalogue.entry import Mode, Sign, Variant

_START = (Phase.START, Phase.WEIGHTS)
_CACHE = (
    r"(?:cache|\.triton|\.config|\.local|\.nv|torchinductor|tvm[-_]ffi|flashinfer|deep_gemm"
    r"|huggingface)"
)

MODES = (
    Mode(
        "disk-full",
        "The disk is full (or its inodes, or a quota), at the path in the evidence. Make room.",
        Action.STOP,
        _START,
        (
            Sign(r"No space left on device", unless=r"Warning"),
            Sign(r"Disk quota exceeded|Not enough (?:free )?disk space"),
        ),
    ),
    Mode(
        "hub-gated",
        "The model is gated and this host may not download it. Accept its licence and give the"
        " server an HF_TOKEN.",
        Action.STOP,
        _START,
        (
            Sign(r"You are trying to access a gated repo"),
            Sign(r"GatedRepoError", near=r"You are trying to access a gated repo"),
            Sign(
                r"40[13] Client Error|Invalid (?:user )?token|Access to model \S+ is restricted",
                near=r"huggingface\.co|hf\.co",
                away=r"Cannot access gated repo for url",
                raised=True,
            ),
        ),
    ),
    Mode(
        "hub-gated-but-cached",
        "The hub refuses a gated model that may already be on this disk. Set HF_HUB_OFFLINE=1 to"
        " use the cached files.",
        Action.RETRY,
        _START,
        (
            # Transformers says "You are trying to access" only after it has looked in the cache.
            Sign(
                r"Cannot access gated repo for url",
                away=r"You are trying to access a gated repo",
            ),
        ),
        Remedy(
            "use the cached snapshot",
            env={"HF_HUB_OFFLINE": "1"},
            requires=(Requirement(Need.SNAPSHOT),),
        ),
        check="the cache holds a whole snapshot of the model",
    ),
    Mode(
        "hub-network",
        "The hub can't be reached and the files aren't in the cache. Check the network, or"
        " download the model beforehand.",
        Action.RETRY,
        _START,
        (
            Sign(
                r"LocalEntryNotFoundError|We couldn't connect to 'https?://"
                r"|Cannot reach https?://\S*(?:huggingface|hf)|offline mode is enabled"
                r"|OfflineModeIsEnabled|outgoing traffic has been disabled",
            ),
            Sign(
                r"(?:ConnectionError|ConnectTimeout|ReadTimeout|MaxRetryError|SSLError|ProxyError|"
                r"NameResolutionError|ConnectError).*(?:huggingface\.co|hf\.co|hf-mirror|modelscope|cdn-lfs)",
                raised=True,
                unless=r"Retrying|Retry \d|thrown while requesting",
            ),
            Sign(
                r"(?:429|500|502|503|504) (?:Client|Server) Error.*(?:huggingface\.co|hf\.co)",
            ),
        ),
        Remedy("wait a minute for the network", wait_s=60.0),
        variants=(
            Variant(
                r"offline mode is enabled|OfflineModeIsEnabled|outgoing traffic has been disabled",
                Action.STOP,
                explanation="The hub is switched off (HF_HUB_OFFLINE) and the files aren't in the"
                " cache. Download the model beforehand.",
            ),
        ),
    ),
    Mode(
        "permission-denied-cache",
        "The server may not write to its cache folder. Set XDG_CACHE_HOME to one that it"
        " may write.",
        Action.RETRY,
        _START,
        (
            Sign(rf"(?:Permission denied|Read-only file system)\W*.*{_CACHE}", raised=True),
            Sign(
                rf"(?:[Pp]ermission|writ)\w*.*{_CACHE}.*(?:denied|not writable|read-only)",
                raised=True,
            ),
        ),
        Remedy(
            "give the server a cache folder of its own",
            env={
                name: f"/tmp/sglang-sweep-cache{folder}"
                for name, folder in (
                    ("XDG_CACHE_HOME", ""),
                    ("TRITON_CACHE_DIR", "/triton"),
                    ("TORCHINDUCTOR_CACHE_DIR", "/inductor"),
                    ("TORCH_EXTENSIONS_DIR", "/torch_extensions"),
                    ("FLASHINFER_WORKSPACE_BASE", ""),
                )
            },
            requires=(Requirement(Need.WRITABLE, "/tmp/sglang-sweep-cache"),),
        ),
        check="/tmp is writable and has room",
    ),
)
