"""What `porter eval` feeds a model is what each protocol's own library makes of the same files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.photo_files import realistic
from tests.support.whole_protocols import EXACT, PROTOCOLS, SIDE, Way, inputs_of_eval, original


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    made = [folder / f"{width}.jpg" for width in (333, 500, 240)]
    for file, size in zip(made, ((333, 487), (500, 375), (240, 251)), strict=True):
        realistic(*size).save(file, quality=90)
    return made


@pytest.mark.parametrize("way", PROTOCOLS, ids="-".join)
def test_eval_feeds_what_the_library_makes_of_the_file(way: Way, files: list[Path], tmp_path: Path) -> None:
    if way[1] == "none":
        Image.open(files[0]).resize((SIDE, SIDE)).save(tmp_path / "sized.png")
        files = [tmp_path / "sized.png"]
    protocol = PROTOCOLS[way]
    levels = np.asarray(protocol.std)[:, None, None] * protocol.divide
    for file, ours in zip(files, inputs_of_eval(files, protocol), strict=True):
        theirs = original(file, way)
        assert ours.shape == (3, SIDE, SIDE)
        if way in EXACT:
            np.testing.assert_array_equal(ours, theirs)
        apart = np.abs(ours - theirs) * levels
        assert apart.max() <= 1.01 and (apart > 0.01).mean() < (0.1 if way[0] == "opencv_cubic" else 1e-4)
