"""Settings as porter's engine decodes them."""

from __future__ import annotations

import pytest

from porter.filegraph.kernels.settings import Settings

SETTINGS = Settings(
    {
        "kernel": ("(3, 5)",),
        "shape": ("[0, -1]",),
        "long": ("(4L, 4L)",),
        "axis": ("None",),
        "bias": ("False",),
        "old": ("1",),
        "low": ("true",),
        "eps": ("1e-05",),
        "most": ("inf",),
        "eight": ("08",),
        "kernel_size": ("3",),
        "kernel_w": ("5",),
        "pool": ("MAX", "AVE"),
        "coeff": ("1", "-0.5"),
    }
)


def test_what_is_stated() -> None:
    assert SETTINGS.pair("kernel", 1) == (3, 5) and SETTINGS.pair("stride", 2) == (2, 2)
    assert SETTINGS.pair("kernel_size", 1) == (3, 5)
    assert SETTINGS.counts("shape") == [0, -1] and SETTINGS.counts("axis") == []
    assert SETTINGS.counts("long") == [4, 4]
    assert SETTINGS.count("axis", 2) == 2 and SETTINGS.count("eight", 0) == 8
    assert [SETTINGS.flag(name, True) for name in ("bias", "old", "low", "axis")] == [False, True, True, True]
    assert SETTINGS.number("eps", 0.1) == 1e-5 and SETTINGS.number("most", 0) == float("inf")
    assert SETTINGS.word("pool") == "AVE" and SETTINGS.values("coeff") == [1, -0.5]


@pytest.mark.parametrize("word", ["conv", "(3, x)", "(" * 500, "1," * 600])
def test_what_is_no_number(word: str) -> None:
    with pytest.raises(ValueError, match=r"is no number|could not convert"):
        Settings({"kernel": (word,)}).counts("kernel")
