"""Compare the version numbers of wheels: what counts of `2.9.1+cu130` or `0.6.3rc1`."""

import re


def numbers(version: str) -> tuple[int, ...]:
    """The release numbers: `2.9.1+cu130` is (2, 9, 1); empty where there are none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, match.group(1).split("."))) if match else ()


def below(version: str | None, bound: str) -> bool:
    """Whether a version is known and lower than a bound; `2.9` and `2.9.0` are the same."""
    mine, other = numbers(version or ""), numbers(bound)
    width = max(len(mine), len(other))
    return bool(mine) and _padded(mine, width) < _padded(other, width)


def _padded(release: tuple[int, ...], width: int) -> tuple[int, ...]:
    return release + (0,) * (width - len(release))


def cuda_of(version: str | None) -> int | None:
    """The CUDA major that a wheel was built for by its local version: `+cu130` is 13."""
    match = re.search(r"\+.*?cu(\d{2})\d", version or "")
    return int(match.group(1)) if match else None


def major(version: str | None) -> int | None:
    """The first number of a version."""
    release = numbers(version or "")
    return release[0] if release else None
