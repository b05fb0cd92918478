"""docs/padding.md holds what the frameworks compute, and that is what the guide says about it."""

import re
from functools import cache

import pytest

from porter.padding import Convention
from tests.support import windows_picture
from tests.support.field_guide import (
    BLOCK,
    DOCUMENT,
    FIGURES,
    GEOMETRIES,
    by_arithmetic,
    markdown,
    mobilenet_distance,
)

TEXT = DOCUMENT.read_text(encoding="utf-8")
ROUNDING = 1e-6
"""A documented difference below this is float32's rounding, which machines do not share: it only has to stay
below.
"""


@cache
def cells(name: str) -> dict[str, tuple[str, ...]]:
    """The computed rows by their first cell; of several with the same, by the first two."""
    rows = FIGURES[name]()[1:]
    firsts = [row[0] for row in rows]
    return {row[0] if firsts.count(row[0]) == 1 else " ".join(row[:2]): row[1:] for row in rows}


@cache
def computed(name: str) -> str:
    return markdown(FIGURES[name]())


def tokens(text: str) -> list[str]:
    return [_rounded(token) for token in text.split()]


def _rounded(token: str) -> str:
    return "rounding" if re.fullmatch(r"\d(\.\d+)?e-\d+", token) and float(token) < ROUNDING else token


def test_every_figure_is_in_the_document_once() -> None:
    assert [block[2] for block in BLOCK.finditer(TEXT)] == sorted(
        FIGURES, key=lambda name: TEXT.index(f"figures: {name} -->")
    )


@pytest.mark.parametrize("name", FIGURES)
def test_the_document_holds_what_is_computed(name: str) -> None:
    documented = next(block[0] for block in BLOCK.finditer(TEXT) if block[2] == name)
    assert tokens(documented) == tokens(f"<!-- figures: {name} -->\n{computed(name)}<!-- end -->")


def test_the_first_page_has_the_windows_as_porter_counts_them() -> None:
    assert windows_picture.FILE.read_text(encoding="utf-8") == windows_picture.picture()


def test_no_figure_stands_outside_the_tables() -> None:
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", BLOCK.sub("", TEXT))
    assert not re.findall(r"\d[.,]\d|\d/\d|\d\s?%|\de-\d|\d dB", prose.replace("(0,1)", ""))


def test_a_window_shifted_in_four_numbers() -> None:
    """onnx/onnx#388."""
    assert [row[0] for row in cells("window_shift").values()] == ["`[[5,7],[13,15]]`", "`[[10,11],[14,15]]`"]


def test_a_strided_convolution_is_wrong_until_it_is_padded_as_same() -> None:
    (_, wrong), (_, right) = cells("conv_on_ten").values()
    assert 0.1 < float(wrong) < 0.4
    assert float(right) < 1e-7


def test_zero_padding_is_same_on_maps_of_one_parity_and_before_a_pool_on_none() -> None:
    (one, both), (pool_one, pool_both) = (
        list(cells("zero_padding").values())[:2],
        list(cells("zero_padding").values())[2:],
    )
    assert one[-1] == both[-2] == "equal" and one[-2].startswith("off by") and both[-1] == "5×5 for 6×6"
    assert "equal" not in (*pool_one, *pool_both)


def test_a_pool_of_two_has_one_window_more_on_odd_maps() -> None:
    assert cells("pool_of_two") == {"5×5": ("3×3", "2×2", "of another size"), "6×6": ("3×3", "3×3", "equal")}


def test_the_fill_changes_the_border_and_the_side_changes_most_outputs() -> None:
    (even_pads, even_fill, even_side), (odd_pads, odd_fill, odd_side) = cells("stem_pool").values()
    assert (even_pads, odd_pads) == ("(0,1)", "(1,1)")
    assert 0 < float(even_fill[:-1]) < 0.5 and 0 < float(odd_fill[:-1]) < 0.5
    assert float(even_side[:-1]) > 60 and odd_side == "0.00%"


def test_averages_are_off_by_four_ninths_or_nine_quarters_in_the_corner() -> None:
    for name, found in cells("averages").items():
        leaves_out = any(word in name for word in ("same", "False", "CNTK"))
        assert found == (("1", "1", "1") if leaves_out else ("4/9", "2/3", "1"))
    excluding, counting = cells("rebuilt_averages").values()
    assert excluding[1:3] == ("4/9", "2/3") and counting[1:3] == ("9/4", "3/2")
    assert excluding[3:] == counting[3:] == ("11%", "22%", "44%")


def test_frameworks_disagree_about_the_first_window() -> None:
    found = cells("sides")
    assert (
        found["TensorFlow, Keras `same`"]
        == ("0 (112)", "-1 (113)", "-2 (112)", "-3 (113)")
        == found["ONNX `SAME_UPPER`"]
    )
    assert (
        found["torch, `padding=k//2`"]
        == found["CNTK `autoPadding`"]
        == ("-1 (112)", "-1 (113)", "-3 (112)", "-3 (113)")
    )
    assert found["Caffe, pools with `pad` 0, rounding up"][:2] == ("0 (112)", "0 (112)")


def test_porters_arithmetic_is_what_the_frameworks_show() -> None:
    for name, convention in (
        ("TensorFlow, Keras `same`", lambda k: Convention("same")),
        ("torch, `padding=k//2`", symmetric),
    ):
        wanted = ["{} ({})".format(*by_arithmetic(convention(k), k, n)) for k, n in GEOMETRIES]
        assert list(cells("sides")[name]) == wanted


def symmetric(kernel: int) -> Convention:
    return Convention("explicit", (kernel // 2,) * 4)


def test_mobilenet_with_symmetric_pads_has_right_shapes_and_a_low_signal_to_noise_ratio() -> None:
    right, symmetric, unpadded = cells("mobilenet").values()
    assert (right[0], symmetric[0], unpadded[0]) == ("112×112", "112×112", "111×111")
    snr = mobilenet_distance("1").snr_db
    assert snr is not None and 0 < snr < 12
    assert mobilenet_distance("same").snr_db is None
