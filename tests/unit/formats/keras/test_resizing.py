"""What the reader makes of a crop to an aspect is held to Keras's own arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

import porter
from porter.formats.keras import resizing
from porter.frameworks.tf.runtime import import_keras


@pytest.mark.usefixtures("one_recipe")
def test_a_wrong_crop_that_leaves_nothing_to_resize_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = import_keras()
    given = keras.layers.Input((12, 16, 3))
    found = keras.layers.Resizing(12, 8, crop_to_aspect_ratio=True)(
        keras.layers.Conv2D(4, 3, padding="same")(given)
    )
    keras.Model(given, found).save(tmp_path / "net.keras")
    monkeypatch.setattr(
        resizing, "_cropped", lambda size, wanted: (0, wanted[0] - size[0], 0, wanted[1] - size[1])
    )
    with pytest.raises(porter.PorterError, match=r"is not the source's function: resizing.* in float64"):
        porter.convert(tmp_path / "net.keras", out=tmp_path / "port")
