"""Version numbers as wheels bear them."""

import pytest

from tasks.stack.versions import below, cuda_of, major, numbers


@pytest.mark.parametrize(
    ("version", "release"),
    [("2.9.1+cu130", (2, 9, 1)), ("0.6.3rc1", (0, 6, 3)), ("v1.0", (1, 0)), ("", ()), ("x", ())],
)
def test_numbers(version: str, release: tuple[int, ...]) -> None:
    assert numbers(version) == release


@pytest.mark.parametrize(
    ("version", "bound", "lower"),
    [
        ("0.5.9", "0.5.23", True),
        ("0.5.23", "0.5.9", False),
        ("2.9", "2.9.0", False),
        ("2.9.0", "2.9", False),
        (None, "1", False),
        ("", "1", False),
    ],
)
def test_below(version: str | None, bound: str, lower: bool) -> None:
    assert below(version, bound) is lower


def test_the_cuda_major_of_a_wheel() -> None:
    assert [cuda_of(v) for v in ("0.6.3+cu128", "2.9.1+cu130", "1.0", "1.0+cpu", None)] == [
        12, 13, None, None, None,
    ]  # fmt: skip
    assert (major("13.0"), major(None)) == (13, None)
