"""A Normalization that Keras adapted to data, in a recipe: the numbers are those that the file of weights
holds.
"""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import porter
from porter.base.errors import MappingError, RecipeError
from porter.graph import Affine
from porter.recipe import expand, layer_names, load_recipe
from tests.support.recipe.recipes import write

pytestmark = pytest.mark.usefixtures("in_double")

LAYERS = keras.layers
RECIPE = """\
architecture: adapted
variants: {adapted: {width: 8}}
options: {classes: 7, bn_epsilon: 1.0e-3}
input: {size: 20}
graph:
  - {affine: input/normalise}
  - {conv: stem/conv, filters: =width, kernel: 3, stride: 2, bias: true, pad: same}
  - {relu: stem/relu}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
zoos:
  own:
    framework: tf
    activation: softmax
    names:
      input/normalise: {name: normalise, adapted: true}
      stem/conv: stem
      head/logits: out
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model whole, its weights by the names of its layers, and its weights without them; and the
    recipe.
    """
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    folder, photos = (
        tmp_path_factory.mktemp("adapted"),
        np.random.default_rng(0).normal((90, 120, 60), (40, 60, 5), (8, 20, 20, 3)),
    )
    image, layer = keras.Input((20, 20, 3)), LAYERS.Normalization(name="normalise")
    layer.adapt(photos)
    value = LAYERS.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="stem")(layer(image))
    model = keras.Model(
        image, LAYERS.Dense(7, activation="softmax", name="out")(LAYERS.GlobalAveragePooling2D()(value))
    )
    model.save(folder / "whole.keras")
    model.save_weights(folder / "named.weights.h5")
    tensors = {
        f"{layer.name}/{weight.name}": np.asarray(weight)
        for layer in model.layers
        for weight in layer.weights
    }
    np.savez(folder / "weights.npz", allow_pickle=False, **tensors)
    np.savez(
        folder / "lacking.npz",
        allow_pickle=False,
        **{name: array for name, array in tensors.items() if name != "normalise/variance"},
    )
    np.savez(
        folder / "misshaped.npz",
        allow_pickle=False,
        **{**tensors, "normalise/mean": np.zeros(2), "normalise/variance": np.ones(2)},
    )
    write(folder, RECIPE, "adapted.yaml")
    return folder


@pytest.mark.parametrize("weights", ["whole.keras", "named.weights.h5", "weights.npz"])
@pytest.mark.parametrize("destination", ["torch", "onnx"])
def test_a_port_has_the_numbers_of_the_file_and_is_proved(
    folder: Path, weights: str, destination: str, tmp_path: Path
) -> None:
    file, reference = folder / weights, folder / "whole.keras"
    made = porter.convert(
        "adapted",
        "own",
        destination,
        weights=file,
        out=tmp_path / "port",
        recipes=folder,
        reference=reference,
        check=True,
    )
    assert made.verdict is not None and made.verdict.ok and made.port.record.check == "passed"
    scaling = made.port.graph.by_path["input/normalise"].op
    assert isinstance(scaling, Affine) and len(set(scaling.scale)) == 3
    ignored = made.port.record.tensors.ignored
    assert (
        ignored["normalise/mean"]
        == ignored["normalise/variance"]
        == "its numbers are the constants of input/normalise"
    )
    assert made.port.record.assumed == ()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("lacking", "1 tensors missing: normalise/variance 3"),
        ("misshaped", "does not hold one mean"),
    ],
)
def test_a_file_without_the_numbers_is_refused(
    folder: Path, weights: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(MappingError, match=message):
        porter.convert(
            "adapted",
            "own",
            "torch",
            weights=folder / f"{weights}.npz",
            out=tmp_path / "port",
            recipes=folder,
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            RECIPE.replace("stem/conv: stem", "stem/conv: {name: stem, adapted: true}"),
            "and 'stem/conv' is conv in a tf zoo",
        ),
        (
            RECIPE.replace("framework: tf", "framework: torch"),
            "and 'input/normalise' is affine in a torch zoo",
        ),
    ],
)
def test_only_an_affine_step_of_keras_is_adapted(text: str, message: str, tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, text, "wrong.yaml"))
    member = recipe.member("adapted", "own")
    with pytest.raises(RecipeError, match=message):
        layer_names(member, expand(member))
