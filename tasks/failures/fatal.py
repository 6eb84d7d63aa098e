"""Tell the lines after which a launch can't become ready."""

from tasks.failures.text import is_noise, plain, regex

_HINTS = ("igquit", "SIGQUIT", "xception", "error", "Error", "dead", "died", "crashed", "terminate")
_FATAL = (
    r"Received sigquit from a child proces|SIGQUIT received\. signum|Scheduler hit an exception"
    r"|\w: error: (?:unrecognized arguments|ambiguous option|argument -|the following arguments)"
    r"|scheduler (?:is dead|died during init)|crashed with exit code"
    r"|terminate called (?:after|without)|error while attempting to bind on address"
    r"|Initialization failed\. warmup error|Fatal Python error"
)


def fatal_line(line: str) -> bool:
    """Tell whether a launch that wrote this line is lost.

    Precise rather than complete: a launch without such a line may still fail, and the process'
    end tells then. The lines that explain the failure may follow, so read on for a moment.
    """
    if not any(hint in line for hint in _HINTS):
        return False
    text = plain(line)
    return bool(regex(_FATAL).search(text)) and not is_noise(text)
