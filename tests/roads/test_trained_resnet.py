"""Keras's ResNet v2, whose weights slim trained with another pool than Keras ships, as a shallow network of
Keras's own code.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.runtime import import_keras
from porter.padding import LOWEST, Convention
from porter.recipe import Member, Recipe, expand, find_recipe, layer_names
from porter.verification.numbers import distance
from tests.support.ops import op_at
from tests.support.recipe.recipes import copied
from tests.support.standin import calibrated_tensors
from tests.support.standin_files import make_batch

pytestmark = pytest.mark.usefixtures("in_double")

VARIANT, POOL, CLASSES, SIZE = "shallow", "stem/pool", 10, (64, 64)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe with a variant of two stages, two units each: as few as Keras's code can stack."""
    changes = {
        "\nvariants:\n": f"\\g<0>  {VARIANT}: {{layers: 8, depths: [2, 2, 0, 0], bottleneck: true}}\n",
        "\n    names:": "\n    reference: none\n    names:",  # no zoo's own code has such a model
        r"\n    only: \[resnet50v2": f"\\g<0>, {VARIANT}",
    }
    return copied(tmp_path_factory.mktemp("recipes"), changes, "resnet_v2")


@pytest.fixture(scope="module")
def model(recipes: Path) -> Any:
    """The network as Keras's code builds it, with calibrated weights; what arrives at its pool is mostly
    negative.
    """
    recipe = find_recipe(VARIANT, recipes)
    keras_model = build_model()
    assign(keras_model, recipe)
    return keras_model


def build_model() -> Any:
    import_keras()
    from keras.src.applications import resnet

    def stack(x: Any) -> Any:
        x = resnet.stack_residual_blocks_v2(x, 64, 2, name="conv2")
        return resnet.stack_residual_blocks_v2(x, 128, 2, name="conv3")

    arguments = {
        "weights": None,
        "classes": CLASSES,
        "classifier_activation": None,
        "input_shape": (*SIZE, 3),
    }
    return resnet.ResNet(stack, preact=True, use_bias=True, weights_name=VARIANT, **arguments)


def assign(model: Any, recipe: Recipe) -> None:
    framework, zoo = get_destination("tf"), recipe.zoo("keras", VARIANT)
    graph = expand(Member(recipe, VARIANT, zoo), {"classes": CLASSES})
    names = layer_names(Member(recipe, VARIANT, zoo), graph)
    for path, roles in calibrated_tensors(graph, SIZE, seed=3, lowered=("stem/conv",)).items():
        node = graph.by_path[path]
        arrays = [
            get_dialect(framework.NAME).from_canonical(graph, node, role, array)
            for role, array in roles.items()
        ]
        model.get_layer(names[path].name).set_weights(arrays)


def repaired(model: Any) -> Any:
    """Keras's model without its pad layer, its pool SAME: what the weights were trained as."""
    config = model.get_config()
    for layer in config["layers"]:
        if layer["name"] == "pool1_pad":
            layer["config"]["padding"] = ((0, 0), (0, 0))
        if layer["name"] == "pool1_pool":
            layer["config"]["padding"] = "same"
    other = type(model).from_config(config)
    other.set_weights(model.get_weights())
    return other


def test_the_pool_of_training(model: Any, recipes: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "shallow.keras")
    ported = {
        padding: porter.convert(
            VARIANT,
            "keras",
            "torch",
            weights=tmp_path / "shallow.keras",
            out=tmp_path / padding,
            padding=padding,
            check=padding == "trained",
            recipes=recipes,
        )
        for padding in ("shipped", "trained")
    }
    verdict, graph = ported["trained"].verdict, ported["trained"].port.graph
    assert op_at(graph, POOL).convention == Convention("same", fill=LOWEST)
    assert verdict is not None and verdict.ok and verdict.shipped is not None
    assert verdict.shipped.parities[-1].reference == "the file's own graph"
    for parity in (verdict.shipped.parities[-1], verdict.parities[-1]):
        assert (
            parity.dtype == "float64"
            and not parity.uncompared
            and all(node.rel_l2 <= 1e-10 for node in parity.nodes)
        )
    assert verdict.shipped.rel_l2 >= 1e-2
    assert json.loads((tmp_path / "trained" / "port.json").read_text())["padding"] == "trained"
    # Keras itself, once as it ships the network and once with the pool put right, which porter has no part
    # in.
    batch = make_batch(SIZE, 4, 3, ported["trained"].port.record.preprocess).astype(np.float32)
    keras = {
        name: np.asarray(made(batch.transpose(0, 2, 3, 1)))
        for name, made in (("shipped", model), ("trained", repaired(model)))
    }
    for padding in ported:
        found = get_destination("torch").ENGINE.run(porter.load(tmp_path / padding), batch, [graph.output])[
            graph.output
        ]
        apart = {name: distance(values, found).rel_l2 for name, values in keras.items()}
        assert apart.pop(padding) <= 1e-5
        assert min(apart.values()) >= 1e-2
