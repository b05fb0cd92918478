import time
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from porter.base.errors import RecipeError
from porter.recipe.expressions import evaluate, fill_in, placeholders, round8

VARIABLES = {"alpha": 0.5, "depths": (3, 4, 6, 3), "width": 64, "stem": "deep", "first": True, "stride": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("=4*width", 256),
        ("= width // 3 % 5", 1),
        ("=width/alpha", 128.0),
        ("=-width + 1", -63),
        ("=int(width*alpha)", 32),
        ("=round8(width*0.3)", 24),
        ("=max(width, 100) - min(1, 2, 0)", 100),
        ("=depths[0] + depths[3]", 6),
        ("=depths[stride]", 6),
        ("=stem[stride + 1]", "p"),
        ("='abc'[0]", "a"),
        ("=round_to(width*0.3, 4)", 20),
        ("=1280 if alpha <= 1 else round8(1280*alpha)", 1280),
        ("=not first and stride > 1", False),
        ("=first or nowhere", True),
        ("=1 < stride <= 2 != 3", True),
        ("=stem == 'deep'", True),
        ("='raw' if stem != 'deep' else 'preact'", "preact"),
        ("=True", True),
        ("plain", "plain"),
        (7, 7),
        (None, None),
        (("=width", "x", ("=stride",)), (64, "x", (2,))),
    ],
)
def test_values(text: object, value: object) -> None:
    found = evaluate(text, VARIABLES)  # type: ignore[arg-type]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "=__import__('os').system('true')",
        "=(1).__class__",
        "=width.real",
        "=9**9**9",
        "=1 << 99999",
        "=~width",
        "='a' * 1000000000",
        "='a' + 'b'",
        "=depths * 1000000000",
        "=[0] * 1000000000",
        "=[x for x in depths]",
        "=lambda: 1",
        "=(width := 3)",
        "=f'{width}'",
        "=depths[0:2]",
        "=stem[0:2]",
        "=stem[4]",
        "=stem[-1]",
        "=stem['d']",
        "=depths[9]",
        "=depths[-1]",
        "=depths[True]",
        "=width[0]",
        "=min(*depths)",
        "=min(depths)",
        "=int('3')",
        "=int(width, 2)",
        "=max(default=1)",
        "=round(width)",
        "=open('recipe')",
        "=None",
        "=1j",
        "=b'x'",
        "=...",
        "=width in depths",
        "=width is width",
        "=width and first",
        "=not width",
        "=1 if width else 2",
        "=stem < 3",
        "=first + 1",
        "=width/0",
        "=width % 0",
        "=1e300*1e300",
        "=999999999*99",
        "=1e999",
        "=" + "9" * 299,
        "=" + "1+" * 200 + "1",
        "=1if first else 2",
        "=",
        "=width width",
        "=wdith",
    ],
)
def test_nothing_else(text: str) -> None:
    started = time.perf_counter()
    with pytest.raises(RecipeError):
        evaluate(text, VARIABLES)
    assert time.perf_counter() - started < 1


@given(st.text("=()[].,'\"+-*/%<>! abwidth0123456789_lenotrf", max_size=60))
def test_any_text_is_a_value_or_a_recipe_error(text: str) -> None:
    with suppress(RecipeError):
        evaluate("=" + text, VARIABLES)


def test_the_nearest_variable_and_function_are_named() -> None:
    with pytest.raises(RecipeError, match="'wdith' is not a variable") as caught:
        evaluate("=2*wdith", VARIABLES)
    assert caught.value.next == "did you mean 'width'?"
    with pytest.raises(RecipeError, match="no function 'round9'") as caught:
        evaluate("=round9(3)", VARIABLES)
    assert caught.value.next == "did you mean 'round8'?"


def test_round8_is_within_ten_per_cent_below() -> None:
    assert [round8(value) for value in (1, 11.2, 12, 20, 44.8, 48, 1792.0)] == [8, 16, 16, 24, 48, 48, 1792]
    assert all(
        round8(value / 7) >= 0.9 * value / 7 and round8(value / 7) % 8 == 0 for value in range(1, 2000)
    )


def test_templates() -> None:
    assert fill_in("conv{s+1}_block{u}_{part}", {"s": 1, "u": 3, "part": "preact"}) == "conv2_block3_preact"
    assert placeholders("block{count+1}/{part}") == {"count", "part"}
    for template in ("{s}", "{1/2}", "{s+}", "{1 == 1}"):
        with pytest.raises(RecipeError):
            fill_in(template, {})
