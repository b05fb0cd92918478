"""Every protocol of every recipe, at its own sizes, against the zoo's own code or library; and the page that
lists them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.data.interpolations import RESAMPLINGS
from porter.data.photo_decoding import open_image
from porter.data.preparing import normalise, prepare, resize_image, ten_crops
from porter.data.preprocess import Preprocess
from tests.support import originals
from tests.support.checkout import ROOT
from tests.support.photo_files import realistic
from tests.support.protocol_guide import BLOCK, DOCUMENT, ORIGINALS, TABLES, Use, uses, written
from tests.support.zoo_protocols import OPENCV, original, scaled

SIZES = [(500, 375), (333, 487)]


def named(use: Use) -> str:
    return f"{use.zoo}-{use.variants[0]}"


def photos() -> Iterator[Any]:
    """Each use of a protocol with a photo; one protocol of a zoo is shown the second photo once, and by
    `full` every time.
    """
    seen: set[tuple[str, Preprocess]] = set()
    for use in uses():
        if use not in OPENCV:
            marks = [pytest.mark.full] if (use.zoo, use.protocol) in seen else []
            seen.add((use.zoo, use.protocol))
            yield from (
                pytest.param(use, SIZES[0], id=f"{named(use)}-0"),
                pytest.param(use, SIZES[1], id=f"{named(use)}-1", marks=marks),
            )


@pytest.mark.parametrize(("use", "size"), list(photos()))
def test_protocols_are_their_zoos_bit_for_bit(use: Use, size: tuple[int, int]) -> None:
    image = realistic(*size)
    np.testing.assert_array_equal(prepare(image, use.protocol), original(use, image), strict=True)


@pytest.mark.parametrize(
    "protocol",
    list({use.protocol.geometry: use.protocol for use in OPENCV}.values()),
    ids=lambda it: str(it.size),
)
@pytest.mark.parametrize("size", SIZES)
def test_opencv_pixels_are_within_a_level_of_tensornets(
    protocol: Preprocess, size: tuple[int, int], tmp_path: Path
) -> None:
    cv2 = pytest.importorskip("cv2")
    cv2.ipp.setUseIPP(False)
    realistic(*size).save(tmp_path / "photo.png")
    assert protocol.crop is not None
    wanted = originals.tensornets_crops(
        originals.tensornets_pixels(tmp_path / "photo.png", protocol.size, cv2), protocol.crop
    )
    found = np.stack(ten_crops(resize_image(open_image(tmp_path / "photo.png"), protocol), protocol))
    apart = np.abs(found.astype(int) - wanted)
    assert apart.max() <= 1
    assert (apart > 0).mean() < 1e-4


@pytest.mark.parametrize("use", OPENCV, ids=named)
def test_opencv_pixels_are_scaled_as_their_zoos_do_bit_for_bit(use: Use) -> None:
    pixels = np.asarray(realistic(224, 224))
    np.testing.assert_array_equal(normalise(pixels, use.protocol), scaled(use, pixels), strict=True)


def test_the_page_holds_the_recipes_protocols() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [block[2] for block in BLOCK.finditer(text)] == list(TABLES)
    assert text == written(text)


def test_every_protocol_has_an_original_and_every_test_named_is_there() -> None:
    assert {(use.protocol.interpolation, use.protocol.resize) for use in uses()} <= set(ORIGINALS)
    assert {interpolation for interpolation, _ in ORIGINALS} == set(RESAMPLINGS) - {"none"}
    for entry in ORIGINALS.values():
        for test in entry.tests:
            file, name = test.split("::")
            assert f"def {name}(" in (ROOT / "tests" / "unit" / "data" / file).read_text(encoding="utf-8"), (
                test
            )
