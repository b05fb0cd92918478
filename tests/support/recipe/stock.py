"""Recipes against the zoos' own models: names, shapes, strides, pads and epsilons, layer by layer, without
weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.numbering import first_names as keras_layers
from porter.graph import AvgPool, BatchNorm, Conv, Graph, Identity, MaxPool, shapes, site_of, tensor_shapes
from porter.padding import Convention, pad_amounts
from porter.recipe import LayerName, Member, Recipe, expand, find_recipe, layer_names, tap_names
from porter.recipe.transforms import apply_transforms
from porter.zoos.slim.networks import construct
from tests.support.ops import op_at

Pads = tuple[tuple[int, int], ...]
FUNCTIONS = {"add", "concat", "global_avg_pool", "avg_pool", "affine"}
"""Ops that a torch module may call without keeping a module of them."""


def read(
    variant: str, zoo_name: str, generation: str | None = None
) -> tuple[Recipe, Graph, dict[str, LayerName]]:
    recipe = find_recipe(variant)
    member = recipe.member(variant, zoo_name)
    graph = expand(Member(recipe, variant, member.zoo.at(generation)))
    return recipe, graph, layer_names(member, graph, generation)


def tensor_names(
    framework: str, graph: Graph, names: dict[str, LayerName]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The path and role of each tensor, with its likeliest names."""
    for path in tensor_shapes(graph):
        node = graph.by_path[path]
        for role, spellings in get_dialect(framework).tensor_names(graph, node, names[path].name).items():
            yield path, role, tuple(spellings)


def canonical(graph: Graph, path: str, name: LayerName, role: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor of TensorFlow's as the graph has it."""
    zeros = np.broadcast_to(np.float32(0), shape)
    found = get_dialect("tf").to_canonical(graph, graph.by_path[path], role, zeros)
    transforms = tuple(each for each in name.transforms if each != "drop_background")
    return apply_transforms(transforms, role, found).shape


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
    left_out = {"InputLayer", "ZeroPadding2D", "Reshape", "Dropout", "Activation"}
    assert {type(layers[name]).__name__ for name in unnamed} <= left_out
    for path, name in names.items():
        node, layer = graph.by_path[path], layers[name.name]
        channels, *sides = (*known[path], 1, 1)[:3]
        assert tuple(layer.output.shape[1:]) in ((*sides, channels), (channels,)), path
        roles = tensors.get(path, {})
        if isinstance(node.op, BatchNorm):
            assert layer.epsilon == node.op.epsilon and round(1 - layer.momentum, 6) == node.op.momentum
            assert (layer.scale, layer.center) == (node.op.scale, node.op.center)
        elif "kernel" in roles:
            assert canonical(graph, path, name, "kernel", tuple(layer.kernel.shape)) == roles["kernel"]
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
    tensorflow, head = import_tensorflow(), op_at(graph, "head/logits")
    rows, columns = recipe.native_size()
    with tensorflow.Graph().as_default():
        images = tensorflow.compat.v1.placeholder(tensorflow.float32, [None, rows, columns, 3])
        theirs = dict(construct(variant, images, head.units).variables)
    roles_of = tensor_shapes(graph)
    for path, role, spellings in tensor_names("tf", graph, names):
        shape = theirs.pop(next(name for name in spellings if name in theirs))
        assert canonical(graph, path, names[path], role, shape) == roles_of[path][role], (path, role)
    assert not theirs


def assert_torchs(variant: str, zoo: str, model: Any, outside: str) -> None:
    """Every tensor of `model` is one of the recipe's, and the other way round, but those that lead with
    `outside`; and the modules whose outputs the zoo reads are there.
    """
    recipe, graph, names = read(variant, zoo)
    roles_of = tensor_shapes(graph)
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert {
        spellings[0]: roles_of[path].get(role, ())
        for path, role, spellings in tensor_names("torch", graph, names)
    } == {name: shape for name, shape in state.items() if not name.startswith(outside)}
    modules, taps = dict(model.named_modules()), tap_names(recipe.member(variant, zoo), graph)
    kept = {graph.by_path[path].op_name for path in (*names, *taps)}
    assert {node.op_name for node in graph.nodes} - kept <= FUNCTIONS
    for path, name in names.items():
        op = graph.by_path[path].op
        assert taps.get(path, name.name) in modules or isinstance(op, Identity), path
        module: Any = modules.get(name.name)
        if isinstance(op, BatchNorm):
            assert (module.eps, module.momentum) == (op.epsilon, op.momentum)
        elif isinstance(op, Conv | MaxPool) and hasattr(module, "padding"):
            stated = [
                each if isinstance(each, tuple) else (each, each)
                for each in (module.kernel_size, module.stride)
            ]
            assert stated == [op.window.kernel, op.window.stride] and getattr(module, "groups", 1) == getattr(
                op, "groups", 1
            )
            pads = module.padding if isinstance(module.padding, tuple) else (module.padding,) * 2
            assert tuple((pad, pad) for pad in pads) == windowed_pads(graph, path, recipe.native_size()), path
