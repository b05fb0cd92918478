"""Two architectures that are not recipes yet: the language has to carry them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.frameworks import get_framework
from porter.frameworks.tf.runtime import import_keras
from porter.frameworks.torch.reference import import_models
from porter.graph import Affine, AvgPool, BatchNorm, Conv, Graph, MaxPool, shapes, tensor_shapes
from porter.padding import LOWEST, Convention
from porter.plan import ANY, make_plan
from porter.recipe import Recipe, expand, layer_names, load_recipe

DRAFTS = Path(__file__).parent / "drafts"


@pytest.fixture(scope="module")
def resnet() -> Recipe:
    return load_recipe(DRAFTS / "resnet_v2.yaml")


@pytest.fixture(scope="module")
def inception() -> Recipe:
    return load_recipe(DRAFTS / "inception_v3.yaml")


def keras_kernels(model: Any) -> Mapping[str, tuple[int, ...]]:
    """Kernel shapes by layer, as filters, channels, rows, columns."""
    kernels = {layer.name: tuple(layer.kernel.shape) for layer in model.layers if layer.__class__.__name__ in ("Conv2D", "Dense")}
    return {name: (*shape[:1:-1], *shape[:2]) if len(shape) == 4 else shape[::-1] for name, shape in kernels.items()}


def graph_of(recipe: Recipe, variant: str, zoo: str) -> Graph:
    return expand(recipe, variant, recipe.zoo(zoo, variant))


def test_resnet_is_kerass_layer_by_layer(resnet: Recipe) -> None:
    model = import_keras().applications.ResNet50V2(weights=None)
    zoo, graph = resnet.zoo("keras", "resnet50v2"), graph_of(resnet, "resnet50v2", "keras")
    layers, tensors = layer_names(resnet, "resnet50v2", zoo, graph), tensor_shapes(graph)
    assert {layers[path].name: roles["kernel"] for path, roles in tensors.items() if "kernel" in roles} == keras_kernels(model)
    for path, name in layers.items():
        node = graph.by_path[path]
        if isinstance(node.op, Conv):
            layer = model.get_layer(name.name)
            assert layer.strides == node.op.window.stride and layer.use_bias == node.op.bias
    known = shapes(graph, (224, 224))
    for path in (node.path for node in graph.nodes if node.path.endswith("/out")):
        rows, columns, channels = model.get_layer(layers[path].name).output.shape[1:]
        assert known[path] == (channels, rows, columns)
    norms = {layer.name for layer in model.layers if layer.__class__.__name__ == "BatchNormalization"}
    assert norms == {layers[node.path].name for node in graph.nodes if isinstance(node.op, BatchNorm)}


def test_resnets_options_names_and_pads(resnet: Recipe) -> None:
    slim = resnet.zoo("slim", "resnet101v2")
    graph = expand(resnet, "resnet101v2", slim)
    names = layer_names(resnet, "resnet101v2", slim, graph)
    assert names["stage3/unit23/norm2"].name == "resnet_v2_101/block3/unit_23/bottleneck_v2/conv2/BatchNorm"
    assert graph.by_path["head/logits"].op.units == 1001  # type: ignore[union-attr]
    last, first = graph_of(resnet, "resnet50v2", "keras"), graph_of(resnet, "resnet50v2", "gluon")
    strided = [[n.path for n in g.nodes if "conv2" in n.path and n.op.window.stride == (2, 2)] for g in (last, first)]  # type: ignore[union-attr]
    assert strided == [
        ["stage1/unit3/conv2", "stage2/unit4/conv2", "stage3/unit6/conv2"],
        ["stage2/unit1/conv2", "stage3/unit1/conv2", "stage4/unit1/conv2"],
    ]
    assert not any(n.op.bias for n in first.nodes if isinstance(n.op, Conv)) and any(
        n.op.bias for n in last.nodes if isinstance(n.op, Conv)
    )
    keras = resnet.zoo("keras", "resnet50v2")
    trained = expand(resnet, "resnet50v2", keras, as_trained=True)
    pools = [g.by_path["stem/pool"].op for g in (last, trained)]
    assert [pool.convention for pool in pools if isinstance(pool, MaxPool)] == [
        Convention("explicit", (1, 1, 1, 1), 0.0),
        Convention("same", fill=LOWEST),
    ]


def test_inception_is_kerass_in_the_order_of_construction(inception: Recipe) -> None:
    model = import_keras().applications.InceptionV3(weights=None)
    graph = graph_of(inception, "inception_v3", "keras")
    kernels = keras_kernels(model)
    numbered = sorted(kernels.keys() - {"predictions"}, key=lambda name: int((re.findall(r"\d+$", name[6:]) or ["0"])[0]))
    tensors = tensor_shapes(graph)
    ours = [tensors[node.path]["kernel"] for node in graph.nodes if isinstance(node.op, Conv)]
    assert ours == [kernels[name] for name in numbered]
    known = shapes(graph, (299, 299))
    for i in range(11):
        rows, columns, channels = model.get_layer(f"mixed{i}").output.shape[1:]
        assert known[f"mixed{i}/out"] == (channels, rows, columns)


def test_inception_is_torchvisions_by_name(inception: Recipe) -> None:
    state = import_models().inception_v3(weights=None, init_weights=False).state_dict()
    zoo, graph = inception.zoo("torchvision", "inception_v3"), graph_of(inception, "inception_v3", "torchvision")
    layers, framework = layer_names(inception, "inception_v3", zoo, graph), get_framework("torch")
    ours = {
        framework.tensor_names(graph, graph.by_path[path], layers[path].name)[role][0]: shape
        for path, roles in tensor_shapes(graph).items()
        for role, shape in roles.items()
    }
    theirs = {name: tuple(value.shape) for name, value in state.items() if not name.endswith("num_batches_tracked")}
    assert ours == {name: shape for name, shape in theirs.items() if not name.startswith("AuxLogits")}


def test_what_torchvision_does_to_inceptions_input_is_a_node(inception: Recipe) -> None:
    import torch

    node = graph_of(inception, "inception_v3", "torchvision").nodes[0]
    assert isinstance(node.op, Affine) and "transform_input" not in graph_of(inception, "inception_v3", "keras").by_path
    batch = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    stock = import_models().inception_v3(weights=None, init_weights=False, transform_input=True)
    wanted = stock._transform_input(torch.from_numpy(batch)).numpy()
    framework, graph = get_framework("torch"), Graph((node,), 3, node.path)
    model = framework.build(make_plan(graph, ANY, framework.CAPABILITIES), {}, {}, "float64", "cpu")
    assert np.array_equal(framework.run(model, batch, [node.path])[node.path], wanted)


def test_only_average_pools_count_their_pad(inception: Recipe) -> None:
    averages = {
        zoo: {n.op.convention for n in graph_of(inception, "inception_v3", zoo).nodes if isinstance(n.op, AvgPool)}
        for zoo in ("keras", "torchvision")
    }
    assert averages == {
        "keras": {Convention("same", average="real_cells")},
        "torchvision": {Convention("same", average="full_window")},
    }
