"""Launch flags: unknown, ambiguous, with a value that isn't allowed, at odds with each other."""

from tasks.domain.diagnosis import Action, Phase, Remedy
from tasks.failures.catalogue.entry import Mode, Sign, Spread, Variant, Weight

_START = (Phase.START,)
_ADVICE = (
    r"(?:Assertion|Value|NotImplemented|Runtime)Error: [^\n]*(?:[Pp]lease (?:use|set|add|specify"
    r"|pass|enable|disable)|[Tt]ry(?: using| setting)?|[Cc]onsider (?:using|setting)|[Uu]se) `?"
)

MODES = (
    Mode(
        "flag-ambiguous",
        "This SGLang split a flag in two, and its short form could be either. Write it in full.",
        Action.RETRY,
        _START,
        (
            Sign(
                r"ambiguous option: (?P<flag>--[\w-]+)\S* could match"
                r" .*?(?P<full>--[\w-]+-decode)\b",
            ),
            Sign(
                r"ambiguous option: (?P<flag>--[\w-]+)\S* could match (?P<full>--[\w-]+)",
            ),
        ),
        Remedy("write the flag in full", rename_args={"{flag}": "{full}"}),
    ),
    Mode(
        "flag-unknown",
        "This SGLang doesn't know a flag: it is misspelt, gone, or newer than this version. Compare"
        " with `python -m sglang.launch_server --help`.",
        Action.PRUNE,
        _START,
        (
            Sign(r"error: unrecognized arguments: ?(?P<flags>.*)"),
            Sign(
                r"Removed server argument\(s\)|unexpected keyword argument '\w+'",
                unless=r"__init__\(\) got.*config",
            ),
            Sign(r"(?i)no such option:? (?P<flags>--\S+)"),
            Sign(r"(?i)error: (?:unknown|invalid|no such) (?:option|argument):? --?\w"),
        ),
        variants=(
            Variant(
                r"error: unrecognized arguments: ?--(?P<flag>[a-z0-9]*_[a-z0-9_]+)\s*$",
                Action.RETRY,
                Remedy("spell the flag with dashes", args={"{flag}": True}),
                "SGLang's flags are spelt with dashes. Spell this one so.",
            ),
            Variant(
                r"(?m)error: unrecognized arguments: ?--(?P<flag>[a-z0-9]*_[a-z0-9_]+)(?: |=)"
                r"(?P<value>[^\s-]\S*)\s*$",
                Action.RETRY,
                Remedy("spell the flag with dashes", args={"{flag}": "{value}"}),
                "SGLang's flags are spelt with dashes. Spell this one so.",
            ),
            Variant(
                r"(?m)error: unrecognized arguments: ?--(?P<flag>[a-z0-9]*_[a-z0-9_]+)\s*$",
                Action.RETRY,
                Remedy("spell the flag with dashes", args={"{flag}": True}),
                "SGLang's flags are spelt with dashes. Spell this one so.",
            ),
            Variant(
                r"Removed server argument\(s\): (?P<old>\w+) ?-> ?(?P<flag>\w+)=(?P<value>[\w.]+)",
                Action.RETRY,
                Remedy("take the flag's replacement", args={"{old}": None, "{flag}": "{value}"}),
                "This SGLang replaced a flag. Take the replacement that the log names.",
            ),
            Variant(
                r"(?:Removed server argument\(s\): |unrecognized arguments: ?--)(?P<old>[\w-]+)"
                r"[^\n]*(?:->|[Dd]id you mean:? |[Uu]se (?:instead )?)\W*"
                r"(?:--)?(?P<flag>[a-z][\w-]+)",
                Action.RETRY,
                Remedy("take the flag's replacement", rename_args={"{old}": "{flag}"}),
                "This SGLang replaced a flag. Take the replacement that the log names.",
            ),
        ),
        spread=Spread(named=1, parsed=True, any_value=True),
    ),
    Mode(
        "flag-bad-choice",
        "A flag's value isn't among those this SGLang allows; the evidence lists them.",
        Action.PRUNE,
        _START,
        (
            Sign(r"error: argument (?P<flag>--?[\w/-]+)[^:]*: invalid"),
            Sign(r"error: argument (?P<flag>--?[\w/-]+)[^:]*: expected"),
            Sign(r"error: the following arguments are required"),
        ),
        spread=Spread(named=1, parsed=True),
    ),
    Mode(
        "flag-conflict",
        "Two settings can't be combined; the evidence says which. Leave one of them out.",
        Action.PRUNE,
        _START,
        (
            Sign(
                r"(?:Assertion|Value|NotImplemented|Runtime) ?[Ee]rror[:,]? .*\b(?:"
                r"must be divisible by|(?:is|are) not divisible by"
                r"|(?:does not|doesn't) match the .*`\w+` argument"
                r"|is incompatible with|are incompatible|(?:is|are) not compatible with"
                r"|cannot be (?:used|enabled|set|combined)|can't be (?:used|enabled|set|combined)"
                r"|not supported (?:with|when|for(?! now)|together)|mutually exclusive"
                r"|conflicts? with"
                r"|only supports? (?:CUDA|cuda|GPU)|must be (?:set|enabled|disabled|used|greater"
                r"|less|smaller|larger|equal|a (?:multiple|divisor))"
                r"|should (?:not )?be (?:set|used|enabled)"
                r"|requires? (?:--|\w+_\w+|setting|enabling)|is required (?:for|when|to)"
                r"|(?:does not|doesn't) support|at the same time|not allowed with)",
            ),
            Sign(r"error: argument .*not allowed with argument"),
            Sign(
                r"(?:AssertionError|ValueError|NotImplementedError)\b",
                near=r"server_args\.py\", line \d+, in \w+\n(?:.*\n)?(?:.*[~^]{2,}\n)?.{0,80}?"
                r"(?:AssertionError|ValueError|NotImplementedError)",
                weight=Weight.SYMPTOM,
            ),
            Sign(
                r"[Aa]ssertionError: .*(?:_size|--\w)\S* .*(?:divisible|multiple|must|should)",
            ),
        ),
        variants=(
            Variant(
                _ADVICE + r"--(?P<flag>[a-z][a-z0-9-]+)[ =](?P<value>\w[\w.]*)`",
                Action.RETRY,
                Remedy(
                    "take the setting that the log names",
                    args={"{flag}": "{value}"},
                    alters=True,
                ),
                "Two settings can't be combined. Take the one that the log names.",
            ),
            Variant(
                _ADVICE + r"--(?P<flag>(?:disable|enable)-[a-z0-9-]+)\b",
                Action.RETRY,
                Remedy("take the setting that the log names", args={"{flag}": True}, alters=True),
                "Two settings can't be combined. Take the one that the log names.",
            ),
        ),
        spread=Spread(named=2),
    ),
)
