"""Read the text of a log: colours, time stamps, the lines that are noise."""

import re
from functools import cache

LONGEST_EVIDENCE = 400
_SHAPE = str.maketrans("", "", "0123456789abcdef")


@cache
def regex(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on its first use: most of the catalogue is never needed for one log."""
    return re.compile(pattern)


def plain(text: str) -> str:
    """Take the terminal's colour and cursor codes out."""
    if "\x1b" not in text:
        return text
    return regex(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]").sub("", text)


def shape(line: str) -> str:
    """Reduce a line to what lines of its kind share: no digits, nor hexadecimal ones."""
    return line[:160].translate(_SHAPE)


def is_noise(line: str) -> bool:
    """Tell lines that quote an error without having it.

    Model files that can't be imported are listed in every healthy start, torchvision warns of its
    image extension, a traceback shows the source line that raises, the usage text names every
    flag, a request may be refused, and its text may hold anything.
    """
    return bool(
        regex(
            r"Ignore import error|Failed to load image Python ext|\braise \w+(?:Error|Exception)\("
            r"|^\s*\[--|^usage: |can be ignored|(?:Receive|Finish): obj=|GenerateReqInput\("
            r"|server_args=(?:ServerArgs\(|\{)|\[http_server\] Error:"
        ).search(line)
    )


def raised(line: str) -> bool:
    """Tell whether a line reports an error, rather than mention one."""
    return bool(
        regex(
            r"(?:Error|Exception|Failure)\w* *:|\berror:|error while|\bfatal\b|Failed:"
            r"|(?:Value|Assertion) error, "
        ).search(line)
    )


def warns(line: str) -> bool:
    """Tell whether a logger wrote the line below the level of an error."""
    return bool(regex(r"^(?:\([^)]*\) ?|\[[^\]]*\] ?)*(?:WARNING|INFO|DEBUG)\b").search(line))


def stamp(line: str) -> str | None:
    """Read a line's own time as `MM-DD HH:MM:SS`, from SGLang's or torch's (glog's) prefix."""
    if found := regex(r"\[\d{4}-(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)").search(line):
        return f"{found[1]} {found[2]}"
    if found := regex(r"\[[EWIF](\d\d?)(\d\d) (\d\d:\d\d:\d\d)").search(line):
        return f"{int(found[1]):02d}-{found[2]} {found[3]}"
    return None


def shown(line: str) -> str:
    """Shorten a line to what a page can show."""
    line = line.strip()
    return line if len(line) <= LONGEST_EVIDENCE else f"{line[: LONGEST_EVIDENCE - 1]}…"


def exception_name(line: str) -> str | None:
    """Name the exception that a line reports, None where it reports none."""
    found = regex(
        r"(?:^|[\s\]])((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?:_\w+)?)\b(?::|$)"
    ).search(line)
    return found[1] if found else None
