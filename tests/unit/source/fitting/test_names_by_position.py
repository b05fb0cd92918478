"""Files whose names are not TensorNets', as its published ones' may be: its loader goes by position, and
porter does, strictly.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import h5py
import numpy as np
import pytest

import porter
from porter.base.errors import MappingError, NotInstalled
from porter.port import read_port
from porter.zoos.slim import tensornets
from tests.support.arrays import Array
from tests.support.tensornets_files import needs_tensornets, save_pair, tensornets_tensors, write_tensornets

pytestmark = pytest.mark.usefixtures("in_double")

VARIANT = "mobilenet_v1_0.25"


def slims(name: str, place: int) -> str:
    """A name that tells of no place, with the variable's own word."""
    return f"MobilenetV1/Conv2d_{place}/{name.rpartition('/')[2]}"


def beta_first(tensors: dict[str, Array]) -> tuple[list[str], list[Array]]:
    """As slim's norms made their variables before TensorFlow 1.4: tensornets/utils.py, `parse_weights`."""
    names = list(tensors)
    for place in range(1, len(names)):
        if names[place].endswith("/beta") and names[place - 1].endswith("/gamma"):
            names[place - 1], names[place] = names[place], names[place - 1]
    return [slims(name, place) for place, name in enumerate(names)], [tensors[name] for name in names]


def convert(weights: Path, folder: Path, variant: str = VARIANT) -> porter.Ported:
    return porter.convert(variant, "tensornets", "torch", weights=weights, out=folder, check=False)


@needs_tensornets
@pytest.mark.parametrize("dense", ["matrix", "1x1 convolution"])
def test_names_of_somebody_else(tmp_path: Path, dense: str) -> None:
    tensors = tensornets_tensors(VARIANT)
    names, values = beta_first(tensors)
    if dense != "matrix":
        values[-2] = values[-2][None, None]
    made = convert(save_pair(tmp_path / "other.npz", names, values), tmp_path / "other")
    assert any("taken by position" in warning for warning in made.warnings)
    convert(write_tensornets(tmp_path / "own.npz", VARIANT), tmp_path / "own")
    ported = [read_port(tmp_path / name).tensors() for name in ("other", "own")]
    for path, roles in ported[1].items():
        for role, array in roles.items():
            np.testing.assert_array_equal(ported[0][path][role], array)


@needs_tensornets
def test_an_h5_of_kerass_layout(tmp_path: Path) -> None:
    """TensorNets' ResNet-50 is one; whatever its layers are called, `parse_keras_weights` reads them in
    order.
    """
    tensors = tensornets_tensors("resnet50")
    layers: dict[str, list[str]] = {}
    for name in tensors:
        layers.setdefault(name.rpartition("/")[0], []).append(name)
    with h5py.File(tmp_path / "resnet50.h5", "w") as file:
        file.attrs["layer_names"] = [f"layer_{place}".encode() for place in range(len(layers))]
        for place, names in enumerate(layers.values()):
            group = file.create_group(f"layer_{place}")
            words = [f"layer_{place}/{name.rpartition('/')[2]}:0" for name in names]
            group.attrs["weight_names"] = [word.encode() for word in words]
            for word, name in zip(words, names, strict=True):
                group[word] = tensors[name]
    made = convert(tmp_path / "resnet50.h5", tmp_path / "port", "resnet50")
    assert any("taken by position" in warning for warning in made.warnings)
    ported = read_port(tmp_path / "port").tensors()
    np.testing.assert_array_equal(
        ported["stage1/unit1/conv1"]["bias"], tensors["resnet50/conv2/block1/1/conv/biases"]
    )
    np.testing.assert_array_equal(
        ported["stage1/unit1/shortcut/norm"]["beta"], tensors["resnet50/conv2/block1/0/bn/beta"]
    )


@needs_tensornets
def test_what_does_not_agree_is_refused(tmp_path: Path) -> None:
    names, values = beta_first(tensornets_tensors(VARIANT))

    def refused(place: int, name: str | None = None, value: Array | None = None) -> str:
        others, arrays = list(names), list(values)
        others[place], arrays[place] = name or others[place], arrays[place] if value is None else value
        with pytest.raises(MappingError) as caught:
            convert(save_pair(tmp_path / "wrong.npz", others, arrays), tmp_path / "port")
        return str(caught.value)

    assert (
        "'MobilenetV1/Conv2d_5/depthwise_weights' (3x3x9x1) stands where the zoo's code has "
        "'mobilenet25/conv2/sconv/sconv" in refused(5, value=np.zeros((3, 3, 9, 1), np.float32))
    )
    # Shapes do not tell a mean from a variance; names do.
    assert "the zoo's code has 'mobilenet25/conv1/bn/moving_mean'" in refused(3, name="a/moving_variance")
    assert "the zoo's code has 'mobilenet25/conv1/bn/moving_variance'" in refused(4, name="bn1.running_mean")
    assert not (tmp_path / "port").exists()
    with pytest.raises(MappingError, match="none of the file's 135 names is one of the zoo's 137"):
        convert(save_pair(tmp_path / "short.npz", names[2:], values[2:]), tmp_path / "port")


@needs_tensornets
def test_its_own_names_win(tmp_path: Path) -> None:
    tensors = tensornets_tensors(VARIANT)
    names = sorted(tensors)
    made = convert(
        save_pair(tmp_path / "sorted.npz", names, [tensors[name] for name in names]), tmp_path / "port"
    )
    assert not any("places" in warning for warning in made.warnings)
    names.remove("mobilenet25/conv1/bn/gamma")
    with pytest.raises(MappingError, match="1 tensors missing: mobilenet25/conv1/bn/gamma"):
        convert(
            save_pair(tmp_path / "short.npz", names, [tensors[name] for name in names]), tmp_path / "other"
        )


def test_without_tensornets_code_there_is_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> NoReturn:
        raise NotInstalled("tensornets is not installed", next="pip install tensornets")

    code = tensornets.IMPLEMENTATION
    monkeypatch.setattr(tensornets, "IMPLEMENTATION", replace(code, variables=absent))
    with pytest.raises(NotInstalled, match="and the zoo's code has their order: tensornets is not installed"):
        convert(
            save_pair(tmp_path / "other.npz", ["a", "b"], [np.zeros((2, 3)), np.zeros(3)]), tmp_path / "port"
        )
