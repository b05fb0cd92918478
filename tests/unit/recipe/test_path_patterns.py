import time

import pytest

from porter.base.errors import RecipeError
from porter.recipe.path_patterns import match_path


@pytest.mark.parametrize(
    ("pattern", "path", "captured"),
    [
        ("stem/conv", "stem/conv", {}),
        ("stem/conv", "stem/conv1", None),
        ("stage{s}/unit{u}/conv{k}", "stage2/unit10/conv3", {"s": 2, "u": 10, "k": 3}),
        ("stage{s}/unit{u}", "stage2/unit1/conv1", None),
        ("block{i}/{part}/conv", "block0/expand/conv", {"i": 0, "part": "expand"}),
        ("{part}{k}", "norm12", {"part": "norm1", "k": 2}),
        ("**/conv2", "stage1/unit1/conv2", {}),
        ("**/conv2", "conv2", {}),
        ("**/conv2", "stage1/otherconv2", None),
        ("stage1/**", "stage1/unit1/conv2", {}),
        ("stage1/**/conv", "stage1/conv", {}),
        ("stage*/conv", "stage1/conv", {}),
        ("stage*/conv", "stage1/unit1/conv", None),
        ("a.b/c", "aXb/c", None),
    ],
)
def test_matches(pattern: str, path: str, captured: dict[str, object] | None) -> None:
    assert match_path(pattern, path) == captured


@pytest.mark.parametrize(
    "pattern", ["block{i/conv", "block}", "{i}/{i}", "{i+1}", "{}", "{I}", "*a*a*", "**/a/**/b/**", "a/" * 20]
)
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(RecipeError):
        match_path(pattern, "x")


def test_the_costliest_pattern_is_cheap() -> None:
    started = time.perf_counter()
    assert match_path("**/*a*/**/*a*b", "/".join(["a" * 20] * 6)[:128]) is None
    assert time.perf_counter() - started < 1
