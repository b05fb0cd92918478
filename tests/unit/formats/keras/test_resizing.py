"""What the reader makes of a crop to an aspect is held to Keras's own arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import porter
from porter.formats.keras import resizing, windows
from porter.frameworks.tf.runtime import import_keras

pytestmark = pytest.mark.usefixtures("in_double")


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
        resizing, "_crop_pads", lambda size, wanted: (0, wanted[0] - size[0], 0, wanted[1] - size[1])
    )
    with pytest.raises(porter.PorterError, match=r"is not the source's function: resizing.* in float64"):
        porter.convert(tmp_path / "net.keras", out=tmp_path / "port")


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("target", [(7, 10), (14, 8)], ids=["a crop", "a resize of a smaller map"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda size, wanted: (0, wanted[0] - size[0], 0, wanted[1] - size[1]),
        lambda size, wanted: tuple(
            part
            for old, new in zip(size, wanted, strict=True)
            for part in ((new - old) // 2, -((old - new) // 2))
        ),
    ],
    ids=["at the corner", "rounded up"],
)
def test_a_wrong_crop_of_the_middle_is_refused(
    wrong: Any, target: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = import_keras()
    given = keras.layers.Input((12, 15, 3))
    found = keras.layers.CenterCrop(*target)(keras.layers.Conv2D(4, 3, padding="same")(given))
    keras.Model(given, found).save(tmp_path / "net.keras")
    monkeypatch.setattr(resizing, "_crop_pads", wrong)
    with pytest.raises(
        porter.PorterError, match=r"is not the source's function: \w+ is the first.* in float64"
    ):
        porter.convert(tmp_path / "net.keras", out=tmp_path / "port")


@pytest.mark.usefixtures("one_recipe")
def test_a_random_crop_that_the_reader_leaves_out_though_it_resizes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = import_keras()
    given = keras.layers.Input((12, 15, 3))
    found = keras.layers.RandomCrop(12, 14)(keras.layers.Conv2D(4, 3, padding="same")(given))
    keras.Model(given, found).save(tmp_path / "net.keras")
    monkeypatch.setattr(
        "porter.formats.keras.layer_readers.is_already_of_size",
        lambda layer, x: layer.arguments["height"] == windows._map_size(x)[0],
    )
    with pytest.raises(porter.PorterError, match=r"the file gives 'random_crop.*', for which porter takes"):
        porter.convert(tmp_path / "net.keras", out=tmp_path / "port")


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    "resized",
    [
        lambda layers: layers.UpSampling2D((2, 3), interpolation="bilinear"),
        lambda layers: layers.UpSampling2D(2, interpolation="bicubic"),
        lambda layers: layers.Resizing(7, 16),
        lambda layers: layers.CenterCrop(14, 8),
    ],
    ids=["bilinear by factors", "bicubic by factors", "to a size", "a crop of a smaller map"],
)
def test_a_resize_of_a_network_that_takes_any_size_is_proved(resized: Any, tmp_path: Path) -> None:
    """Keras's own rounds to float32 there too."""
    layers = import_keras().layers
    given = layers.Input((12, 15, 3))
    found = resized(layers)(layers.Conv2D(4, 3, padding="same")(given))
    import_keras().Model(given, found).save(tmp_path / "net.keras")
    made = porter.convert(tmp_path / "net.keras", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok and made.verdict.proof.dtype == "float64"
