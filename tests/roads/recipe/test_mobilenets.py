"""The shipped recipes against keras.applications and torchvision: names, shapes, strides, pads, epsilons, for
every width.
"""

from functools import cache
from typing import Any

import pytest

from porter.data.labels import Labels
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.runtime import import_keras
from porter.graph import BatchNorm, Conv, Graph, Node, is_depthwise, shapes, tensor_shapes
from porter.padding import Convention, pad_amounts
from porter.recipe import LayerName, Recipe, expand, find_recipe, layer_names, tap_names
from porter.zoos.tables import TIMM
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models
from tests.support.ops import op_at
from tests.support.parity import LINEN, OWN_CODE
from tests.support.recipe.recipes import NO_PROTOCOL, all_recipes

VARIANTS = [*find_recipe("mobilenet_v1").variants, *(find_recipe("mobilenet_v2").zoos["keras"].only or ())]
V2 = [*(find_recipe("mobilenet_v2").zoos["keras"].only or ())]
NARROW_AND_WIDE = [
    pytest.param(
        variant,
        marks=()
        if variant in ("mobilenet_v1_0.25", "mobilenet_v2_0.35", "mobilenet_v2_1.4")
        else pytest.mark.full,
    )
    for variant in VARIANTS
]
"""In CI a narrow variant of each, and one that is wider than the head's own width."""


def read(variant: str, zoo_name: str) -> tuple[Recipe, Graph, dict[str, LayerName]]:
    recipe = find_recipe(variant)
    member = recipe.member(variant, zoo_name)
    graph = expand(member)
    return recipe, graph, layer_names(member, graph)


@cache
def keras_model(variant: str) -> Any:
    recipe = find_recipe(variant)
    applications = import_keras().applications
    build = applications.MobileNet if recipe.architecture == "mobilenet_v1" else applications.MobileNetV2
    return build(alpha=recipe.variants[variant]["alpha"], weights=None)


@pytest.mark.parametrize("variant", NARROW_AND_WIDE)
def test_every_layer_is_kerass(variant: str) -> None:
    _, graph, layers = read(variant, "keras")
    model, tensors = keras_model(variant), tensor_shapes(graph)
    weighted = {layer.name for layer in model.layers if layer.weights}
    assert {layers[path].name for path in tensors} == weighted
    for path, roles in tensors.items():
        node, layer = graph.by_path[path], model.get_layer(layers[path].name)
        if isinstance(node.op, BatchNorm):
            assert roles["gamma"] == tuple(layer.gamma.shape)
            assert layer.epsilon == node.op.epsilon and layer.momentum == pytest.approx(1 - node.op.momentum)
        else:
            assert canonical_kernel(graph, node, layer) == roles["kernel"] and layer.use_bias == (
                "bias" in roles
            )
        if isinstance(node.op, Conv):
            assert layer.strides == node.op.window.stride
            assert keras_pads(layer, graph, node) == graph_pads(graph, node)


def canonical_kernel(graph: Graph, node: Node, layer: Any) -> tuple[int, ...]:
    shape = tuple(layer.kernel.shape)
    if is_depthwise(graph, node):
        rows, columns, channels, multiplier = shape
        return channels * multiplier, 1, rows, columns
    kernel = (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else shape[::-1]
    return kernel[:2] if node.op_name == "dense" else kernel


def graph_pads(graph: Graph, node: Node) -> tuple[tuple[int, int], ...]:
    """Cells before and after the rows and the columns at the native size."""
    assert isinstance(node.op, Conv)
    _, *size = shapes(graph, (224, 224))[node.inputs[0]]
    return tuple(pad_amounts(node.op.convention, node.op.window, axis, n or 0) for axis, n in enumerate(size))


def keras_pads(layer: Any, graph: Graph, node: Node) -> tuple[tuple[int, int], ...]:
    assert isinstance(node.op, Conv)
    before = layer.input._keras_history.operation
    if layer.padding == "valid":
        return before.padding if before.__class__.__name__ == "ZeroPadding2D" else ((0, 0), (0, 0))
    return tuple(
        pad_amounts(Convention("same"), node.op.window, axis, n)
        for axis, n in enumerate(before.output.shape[1:3])
    )


@pytest.mark.parametrize("variant", NARROW_AND_WIDE)
def test_the_other_names_are_layers_of_keras_too(variant: str) -> None:
    _, graph, layers = read(variant, "keras")
    model, known = keras_model(variant), shapes(graph, (224, 224))
    for path, layer in layers.items():
        if layer.name != "global_average_pooling2d":  # Keras counts these by session
            channels, *size = (*known[path], 1, 1)[:3]
            assert tuple(model.get_layer(layer.name).output.shape[1:]) in ((*size, channels), (channels,)), (
                path
            )
    unnamed = {node.path for node in graph.nodes} - layers.keys()
    assert not unnamed


def test_keras_v1_differs_from_same_on_odd_maps_only() -> None:
    _, graph, _ = read("mobilenet_v1", "keras")
    fixed = [
        node.path
        for node in graph.nodes
        if isinstance(node.op, Conv) and node.op.convention.pads == (0, 1, 0, 1)
    ]
    assert fixed == [
        node.path
        for node in graph.nodes
        if is_depthwise(graph, node) and op_at(graph, node.path).window.stride == (2, 2)
    ]
    assert len(fixed) == 4


@pytest.mark.parametrize("variant", V2)
@pytest.mark.parametrize("zoo", ["torchvision", "torchvision_v2"])
def test_every_tensor_is_torchvisions(variant: str, zoo: str) -> None:
    recipe, graph, layers = read(variant, zoo)
    model = import_models().mobilenet_v2(weights=None, width_mult=recipe.variants[variant]["alpha"])
    expect_module(model, graph, layers)
    assert {node.path for node in graph.nodes} - layers.keys() == {"head/pool"}


@pytest.mark.parametrize("variant", [variant for variant in V2 if variant in TIMM])
def test_every_tensor_is_timms(variant: str) -> None:
    recipe, graph, layers = read(variant, "timm")
    model = getattr(import_timm(), TIMM[variant][0])()
    expect_module(model, graph, layers)
    taps = tap_names(recipe.member(variant, "timm"), graph)
    assert taps.keys() == {node.path for node in graph.nodes}
    assert all(model.get_submodule(name) for name in taps.values())


def expect_module(model: Any, graph: Graph, layers: dict[str, LayerName]) -> None:
    """The module has the graph's tensors under the zoo's names, and its layers the same attributes."""
    framework, shape_of = get_destination("torch"), tensor_shapes(graph)
    ours: dict[str, tuple[int, ...]] = {}
    for path, roles in shape_of.items():
        for role, names in (
            get_dialect(framework.NAME).tensor_names(graph, graph.by_path[path], layers[path].name).items()
        ):
            ours[names[0]] = roles.get(role, ())
    assert ours == {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for path, layer in layers.items():
        node, module = graph.by_path[path], model.get_submodule(layer.name)
        if isinstance(node.op, BatchNorm):
            assert (module.eps, module.momentum) == (node.op.epsilon, node.op.momentum)
        elif isinstance(node.op, Conv):
            assert (module.stride, module.groups) == (node.op.window.stride, node.op.groups)
            assert tuple((pad, pad) for pad in module.padding) == graph_pads(graph, node)


@pytest.mark.parametrize(
    ("variant", "path", "name"),
    [
        ("mobilenet_v1_0.25", "stem/conv", "MobilenetV1/Conv2d_0"),
        ("mobilenet_v1_0.25", "block0/depthwise/conv", "MobilenetV1/Conv2d_1_depthwise"),
        ("mobilenet_v1_0.25", "block12/pointwise/norm", "MobilenetV1/Conv2d_13_pointwise/BatchNorm"),
        ("mobilenet_v1_0.25", "head/logits", "MobilenetV1/Logits/Conv2d_1c_1x1"),
        ("mobilenet_v2_1.4", "stem/norm", "MobilenetV2/Conv/BatchNorm"),
        ("mobilenet_v2_1.4", "block0/depthwise/conv", "MobilenetV2/expanded_conv/depthwise"),
        ("mobilenet_v2_1.4", "block16/project/norm", "MobilenetV2/expanded_conv_16/project/BatchNorm"),
        ("mobilenet_v2_1.4", "head/conv", "MobilenetV2/Conv_1"),
    ],
)
def test_slims_names(variant: str, path: str, name: str) -> None:
    _, graph, layers = read(variant, "slim")
    assert layers[path].name == name
    assert layers["head/logits"].transforms == ("conv1x1_to_dense", "drop_background")
    assert op_at(graph, "head/logits").units == 1001
    assert {
        node.op.convention.rule
        for node in graph.nodes
        if isinstance(node.op, Conv) and node.op.window.kernel == (3, 3)
    } == {"same"}


def test_every_zoo_of_every_recipe_is_complete() -> None:
    """tests/unit/authoring/check expands and names all of them."""
    for recipe in all_recipes():
        for variant in recipe.variants:
            for zoo in recipe.zoos_of(variant).values():
                assert (zoo.preprocess is None) == ((recipe.architecture, zoo.name) in NO_PROTOCOL)
                # Those of MXNet and Caffe are held to their own nets under `full`, Flax's examples to code of
                # the tests.
                own = zoo.name in OWN_CODE or (recipe.architecture, zoo.name) in LINEN
                unproved = own or zoo.framework in ("mxnet", "caffe")
                assert (zoo.labels == Labels("imagenet-1000") and zoo.reference) or unproved
                assert zoo.published.keys() <= zoo.files.keys() and all(
                    file.licence for file in zoo.files.values()
                )


def test_the_default_zoo_of_a_framework() -> None:
    recipe = find_recipe("mobilenet_v2")
    assert (
        recipe.zoo("tf", "mobilenet_v2").name == "keras"
        and recipe.zoo("torch", "mobilenet_v2").name == "torchvision"
    )


def test_keras_2_2_called_mobilenet_v2s_head_otherwise() -> None:
    """keras_applications/mobilenet_v2.py of keras-applications 1.0.2 to 1.0.8: `name='Logits'`; the rest as
    today.
    """
    recipe = find_recipe("mobilenet_v2")
    member = recipe.member("mobilenet_v2", "keras")
    graph = expand(member)
    today, then = (layer_names(member, graph, label) for label in (None, "keras-2.2"))
    assert {path: name for path, name in then.items() if name != today[path]} == {
        "head/logits": LayerName("Logits", ())
    }
