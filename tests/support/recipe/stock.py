"""Recipes against the zoos' own models: names, shapes, strides, pads and epsilons, layer by layer, without
weights.
"""

from __future__ import annotations

from typing import Any

from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.numbering import first_names as keras_layers
from porter.graph import AvgPool, BatchNorm, Conv, Graph, Identity, MaxPool, shapes, site_of, tensor_shapes
from porter.padding import Convention, pad_amounts
from porter.recipe import LayerName, Recipe, expand, find_recipe, layer_names
from porter.zoos.slim.networks import construct

Pads = tuple[tuple[int, int], ...]


def read(variant: str, zoo_name: str) -> tuple[Recipe, Graph, dict[str, LayerName]]:
    recipe = find_recipe(variant)
    member = recipe.member(variant, zoo_name)
    graph = expand(member)
    return recipe, graph, layer_names(member, graph)


def windowed_pads(graph: Graph, path: str, size: tuple[int, int]) -> Pads:
    """Cells before and after the rows and the columns of a site at an input of `size`."""
    node = graph.by_path[path]
    site = site_of(node.op)
    assert site is not None
    _, *sides = shapes(graph, size)[node.inputs[0]]
    return tuple(pad_amounts(site.convention, site.window, axis, n or 0) for axis, n in enumerate(sides))


def assert_kerass(variant: str, model: Any) -> None:
    """Every node is a layer of `model`, in its form, and the other way round except for pad layers, the input
    and flattening.
    """
    recipe, graph, names = read(variant, "keras")
    layers, tensors, size = keras_layers(model), tensor_shapes(graph), recipe.native_size()
    known = shapes(graph, size)
    assert {node.path for node in graph.nodes} == names.keys()
    unnamed = layers.keys() - {name.name for name in names.values()}
    assert {type(layers[name]).__name__ for name in unnamed} <= {"InputLayer", "ZeroPadding2D"}
    for path, name in names.items():
        node, layer = graph.by_path[path], layers[name.name]
        channels, *sides = (*known[path], 1, 1)[:3]
        assert tuple(layer.output.shape[1:]) in ((*sides, channels), (channels,)), path
        roles = tensors.get(path, {})
        if isinstance(node.op, BatchNorm):
            assert layer.epsilon == node.op.epsilon and round(1 - layer.momentum, 6) == node.op.momentum
            assert (layer.scale, layer.center) == (node.op.scale, node.op.center)
        elif "kernel" in roles:
            shape = tuple(layer.kernel.shape)
            assert (
                roles["kernel"] == (*shape[:1:-1], *shape[:2])
                if len(shape) == 4
                else roles["kernel"] == shape[::-1]
            )
            assert layer.use_bias == ("bias" in roles), path
        else:
            assert not layer.weights
        if isinstance(node.op, Conv | MaxPool | AvgPool):
            kernel = layer.kernel_size if isinstance(node.op, Conv) else layer.pool_size
            assert (tuple(kernel), tuple(layer.strides)) == (node.op.window.kernel, node.op.window.stride), (
                path
            )
            assert keras_pads(layer, node.op.window) == windowed_pads(graph, path, size), path


def keras_pads(layer: Any, window: Any) -> Pads:
    before = layer.input._keras_history.operation
    if layer.padding == "valid":
        return tuple(before.padding) if type(before).__name__ == "ZeroPadding2D" else ((0, 0), (0, 0))
    return tuple(
        pad_amounts(Convention("same"), window, axis, n) for axis, n in enumerate(layer.input.shape[1:3])
    )


def assert_slims(variant: str) -> None:
    """Every variable of slim's own code is a tensor of the recipe's, and the other way round."""
    recipe, graph, names = read(variant, "slim")
    tensorflow, framework = import_tensorflow(), get_destination("tf")
    rows, columns = recipe.native_size()
    with tensorflow.Graph().as_default():
        images = tensorflow.compat.v1.placeholder(tensorflow.float32, [None, rows, columns, 3])
        theirs = dict(construct(variant, images, 1001).variables)
    for path, roles in tensor_shapes(graph).items():
        for role, spellings in (
            get_dialect(framework.NAME).tensor_names(graph, graph.by_path[path], names[path].name).items()
        ):
            shape = theirs.pop(next(name for name in spellings if name in theirs))
            expected = roles[role]
            assert ((*shape[:1:-1], *shape[:2])[: len(expected)] if len(shape) == 4 else shape) == expected, (
                path,
                role,
            )
    assert not theirs


def assert_torchs(variant: str, zoo: str, model: Any, taps: dict[str, str], outside: str) -> None:
    """Every tensor of `model` is one of the recipe's, and the other way round, but those that lead with
    `outside`.

    Args:
        taps: by path, the modules whose outputs the zoo reads.
    """
    _, graph, names = read(variant, zoo)
    framework, roles_of = get_destination("torch"), tensor_shapes(graph)
    ours: dict[str, tuple[int, ...]] = {}
    for path, roles in roles_of.items():
        for role, spellings in (
            get_dialect(framework.NAME).tensor_names(graph, graph.by_path[path], names[path].name).items()
        ):
            ours[spellings[0]] = roles.get(role, ())
    state = {
        name: tuple(value.shape) for name, value in model.state_dict().items() if not name.startswith(outside)
    }
    assert ours == state
    modules = dict(model.named_modules())
    for path, name in names.items():
        node = graph.by_path[path]
        assert taps[path] in modules or isinstance(node.op, Identity), path
        if isinstance(node.op, BatchNorm):
            module = modules[name.name]
            assert (module.eps, module.momentum) == (node.op.epsilon, node.op.momentum)
        elif isinstance(node.op, Conv):
            module = modules[name.name]
            assert (module.kernel_size, module.stride, module.groups) == (
                node.op.window.kernel,
                node.op.window.stride,
                node.op.groups,
            )
            assert tuple((pad, pad) for pad in module.padding) == windowed_pads(graph, path, (299, 299)), path
