"""Files of ResNets that older releases of Keras wrote, against the code that those had."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import porter
from porter.base.errors import MappingError
from porter.frameworks import get_destination
from porter.frameworks.tf.runtime import import_keras
from porter.graph.plan import make_plan
from porter.recipe import expand, find_recipe, layer_names
from tests.support.arrays import Array
from tests.support.shallow import DEPTHS, shallow_recipes
from tests.support.standin import calibrated_tensors, smooth_images
from tests.support.standin_files import standin_tensors
from tests.support.weights_files import keras_arrays, write_h5

pytestmark = pytest.mark.usefixtures("in_double")


def run_port(port: Any, batch: Array) -> Array:
    """Logits of a port's graph and tensors in float64."""
    torch = get_destination("torch")
    plan = make_plan(port.graph, (batch.shape[2], batch.shape[3]), torch.CAPABILITIES)
    model = torch.ENGINE.build(plan, port.tensors(), {}, "float64", "cpu")
    return torch.ENGINE.run(model, batch, [port.graph.output])[port.graph.output]


def close(found: Array, wanted: Array) -> bool:
    return bool(np.linalg.norm(found - wanted) <= 1e-10 * np.linalg.norm(wanted))


def older_resnet50(size: tuple[int, int]) -> Any:
    """ResNet50 as keras_applications/resnet50.py had it until 1.0.8, with its names and default epsilons,
    giving logits.
    """
    keras = import_keras()
    layers = keras.layers

    def conv_norm(x: Any, place: str, filters: int, kernel: int = 1, **arguments: Any) -> Any:
        x = layers.Conv2D(filters, kernel, name=f"res{place}", **arguments)(x)
        return layers.BatchNormalization(name=f"bn{place}")(x)

    inputs = layers.Input((*size, 3))
    x = layers.Conv2D(64, 7, strides=2, name="conv1")(layers.ZeroPadding2D(3)(inputs))
    x = layers.ReLU()(layers.BatchNormalization(name="bn_conv1")(x))
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
    for stage, (units, width) in enumerate(zip(DEPTHS, (64, 128, 256, 512), strict=True), 2):
        for unit in "abc"[:units]:
            place, strides = f"{stage}{unit}_branch", 2 if unit == "a" and stage > 2 else 1
            y = layers.ReLU()(conv_norm(x, f"{place}2a", width, strides=strides))
            y = layers.ReLU()(conv_norm(y, f"{place}2b", width, 3, padding="same"))
            y = conv_norm(y, f"{place}2c", 4 * width)
            x = conv_norm(x, f"{place}1", 4 * width, strides=strides) if unit == "a" else x
            x = layers.ReLU()(layers.add([y, x]))
    return keras.Model(inputs, layers.Dense(1000, name="fc1000")(layers.GlobalAveragePooling2D()(x)))


def test_files_of_older_keras_mean_what_older_keras_computed(tmp_path: Path) -> None:
    from keras.src.legacy.saving import legacy_h5_format

    keras, recipes, size = import_keras(), shallow_recipes(tmp_path / "recipes"), (97, 65)
    recipe = find_recipe("resnet50", recipes)
    member = recipe.member("resnet50", "keras")
    graph, tensors = expand(member), standin_tensors("resnet50", "keras", recipes=recipes)
    layers = layer_names(member, graph, "keras-2.2")
    arrays = keras_arrays(graph, layers, tensors)
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        model = older_resnet50(size)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])
    for layer in model.layers:
        for variable in layer.weights:
            variable.assign(arrays.pop(f"{layer.name}/{variable.name}"))
    assert not arrays
    with h5py.File(tmp_path / "old.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
    settings: dict[str, Any] = {"check": False, "recipes": recipes}
    made = porter.convert(
        "resnet50", "keras", "torch", weights=tmp_path / "old.h5", out=tmp_path / "port", **settings
    )
    assert any("keras-2.2" in warning and "bn_epsilon 0.001" in warning for warning in made.warnings)
    batch = smooth_images(3, size, 1, 2).astype(np.float64)
    wanted = model(batch.transpose(0, 2, 3, 1), training=False).numpy()
    assert close(run_port(made.port, batch), wanted)
    renamed = write_h5(tmp_path / "new.h5", keras_arrays(graph, layer_names(member, graph), tensors))
    today = porter.convert("resnet50", "keras", "torch", weights=renamed, out=tmp_path / "new", **settings)
    assert not close(run_port(today.port, batch), wanted), "the epsilon would not show"


def test_keras_applications_resnext_is_a_grouped_convolution(tmp_path: Path) -> None:
    """Against tf_keras's own code, the last that has ResNeXt's block: a depthwise convolution and a sum over
    each group.
    """
    keras = pytest.importorskip("tf_keras")
    code = pytest.importorskip("tf_keras.src.applications.resnet")
    recipes, size = shallow_recipes(tmp_path / "recipes", (1, 1, 1, 2)), (97, 65)
    recipe = find_recipe("resnext50_32x4d", recipes)
    member = recipe.member("resnext50_32x4d", "keras")
    graph = expand(member)
    layers = layer_names(member, graph, "tf_keras")
    tensors = calibrated_tensors(graph, (96, 96), seed=7)
    arrays = keras_arrays(graph, layers, tensors)

    def stacks(x: Any) -> Any:
        x = code.stack3(x, 128, 1, stride1=1, name="conv2")
        x = code.stack3(x, 256, 1, name="conv3")
        x = code.stack3(x, 512, 1, name="conv4")
        return code.stack3(x, 1024, 2, name="conv5")

    # The policy too: another test of the process may have left Keras 2 one that is not its float type's.
    before, policy = keras.backend.floatx(), keras.mixed_precision.global_policy()
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    try:
        model = code.ResNet(
            stacks, False, False, "resnext", weights=None, input_shape=(*size, 3), classifier_activation=None
        )
    finally:
        keras.backend.set_floatx(before)
        keras.mixed_precision.set_global_policy(policy)
    for layer in model.layers:
        if layer.weights:
            layer.set_weights([arrays.pop(weight.name.removesuffix(":0")) for weight in layer.weights])
    assert not arrays
    model.save_weights(tmp_path / "resnext.h5")
    made = porter.convert(
        "resnext50_32x4d",
        "keras",
        "torch",
        weights=tmp_path / "resnext.h5",
        out=tmp_path / "port",
        check=False,
        recipes=recipes,
    )
    batch = smooth_images(3, size, 2, 2).astype(np.float64)
    assert close(run_port(made.port, batch), model(batch.transpose(0, 2, 3, 1), training=False).numpy())


GROUPED = """\
architecture: grouped
variants: {grouped: {}}
options: {bn_epsilon: 1.0e-3}
input: {size: 15, channels: 12}
graph:
  - {conv: conv, filters: 12, kernel: 3, stride: 2, pad: 1, groups: 4}
  - {global_avg_pool: pool}
  - {dense: logits, units: =classes}
zoos:
  keras:
    framework: tf
    names:
      conv: {name: block1_2_conv, transforms: [depthwise_to_grouped]}
      logits: probs
    ignore:
      "*_2_gconv/kernel": {reason: the sum over each group, equals: group_sums}
"""


def grouped_by_depthwise(groups: int, width: int) -> Any:
    """A grouped convolution as keras-applications has said it since e0a6492: the sum over each group is a
    kernel of its own.
    """
    layers, channels = import_keras().layers, groups * width
    kernel = np.zeros((1, 1, channels * width, channels))
    for column in range(channels):
        start = column // width * width**2 + column % width
        kernel[:, :, start : start + width**2 : width, column] = 1
    inputs = layers.Input((15, 15, channels))
    x = layers.ZeroPadding2D(1)(inputs)
    x = layers.DepthwiseConv2D(3, strides=2, depth_multiplier=width, use_bias=False, name="block1_2_conv")(x)
    x = layers.Conv2D(channels, 1, use_bias=False, trainable=False, name="block1_2_gconv")(x)
    model = import_keras().Model(inputs, layers.Dense(1000, name="probs")(layers.GlobalAveragePooling2D()(x)))
    model.get_layer("block1_2_gconv").set_weights([kernel])
    return model


def test_a_sum_over_each_group_is_left_out_once_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "grouped.yaml").write_text(GROUPED, encoding="utf-8")
    model = grouped_by_depthwise(4, 3)
    arrays = {
        f"{layer.name}/{variable.name}": variable.numpy()
        for layer in model.layers
        for variable in layer.weights
    }
    weights = write_h5(tmp_path / "grouped.h5", arrays)
    settings: dict[str, Any] = {"check": False, "recipes": tmp_path / "recipes"}
    made = porter.convert("grouped", "keras", "torch", weights=weights, out=tmp_path / "port", **settings)
    assert made.port.record.tensors.ignored == {"block1_2_gconv/kernel": "the sum over each group"}
    batch = np.random.default_rng(3).normal(size=(2, 12, 15, 15))
    wanted = model(batch.transpose(0, 2, 3, 1).astype(np.float32)).numpy()
    assert np.linalg.norm(run_port(made.port, batch) - wanted) <= 1e-6 * np.linalg.norm(wanted)
    arrays["block1_2_gconv/kernel"] = np.roll(arrays["block1_2_gconv/kernel"], 1, axis=3)
    write_h5(weights, arrays)
    with pytest.raises(MappingError, match="only if it equals group_sums") as caught:
        porter.convert("grouped", "keras", "torch", weights=weights, out=tmp_path / "other", **settings)
    assert caught.value.where == "block1_2_gconv/kernel"
