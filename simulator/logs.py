"""Log lines in SGLang's shape: `[2026-01-10 09:11:02 TP0] message`, straight to the descriptors."""

import os
import time

STDOUT, STDERR = 1, 2


def write(text: str, fd: int = STDERR) -> None:
    """Write all of a text at once, so that lines of several processes don't mix."""
    data = text.encode()
    while data:
        data = data[os.write(fd, data) :]


def stamp(rank: str = "") -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"[{moment}{' ' + rank if rank else ''}]"


def log(message: str, rank: str = "") -> None:
    """Log as SGLang does; `rank` is the prefix of a scheduler process, such as `TP0`."""
    write(f"{stamp(rank)} {message}\n")


def uvicorn(message: str, level: str = "INFO") -> None:
    write(f"{stamp()} {level + ':':<10}{message}\n")


def access(peer: str, method: str, target: str, status: int, reason: str) -> None:
    """Log a request when its response begins, as uvicorn does."""
    line = f'{stamp()} INFO:     {peer} - "{method} {target} HTTP/1.1" {status} {reason}\n'
    write(line, STDOUT)
