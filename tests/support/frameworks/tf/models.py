"""What the tests of this folder build: one site, a small graph of every op, and MobileNetV2."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    ConcatChannels,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Graph,
    Identity,
    MaxPool,
    Node,
    Op,
    Relu,
    Relu6,
    Resize,
    ResizeLike,
    tensor_shapes,
)
from porter.padding import LOWEST, Convention, Window
from porter.recipe import expand, find_recipe, layer_names
from tests.support.arrays import Array
from tests.support.frameworks.every_op import ending_at, every_op, one_of_each

SAME = Convention("same")
ONE = Window((1, 1))


def explicit(*pads: int, **others: object) -> Convention:
    return Convention("explicit", pads, **others)  # type: ignore[arg-type]


def random_tensors(graph: Graph, seed: int = 0) -> dict[str, dict[str, Array]]:
    """Weights under which values neither fade nor saturate on their way through a MobileNet."""
    rng = np.random.default_rng(seed)

    def tensor(role: str, shape: tuple[int, ...]) -> Array:
        if role == "kernel":
            return rng.normal(0, 1.6 / np.sqrt(np.prod(shape[1:])), shape)
        return rng.uniform(0.7, 1.4, shape) if role in ("variance", "gamma") else rng.normal(0, 0.2, shape)

    return {
        path: {role: tensor(role, shape) for role, shape in roles.items()}
        for path, roles in tensor_shapes(graph).items()
    }


@cache
def few_ops() -> Graph:
    """The graph with every op, of which it has one of each for maps and one for others, and no resizes."""
    graph = every_op()
    others = [path for path in graph.outputs if not isinstance(graph.by_path[path].op, Resize | ResizeLike)]
    return ending_at(graph, one_of_each(graph, others))


def network() -> Graph:
    """A small graph with a depthwise and a grouped convolution, every kind of front pad, and a head with
    norms.

    None of the affine nodes' constants is a float32, so that one rounded to it shows in float64.
    """
    three = Window((3, 3), (2, 2))
    steps: list[tuple[str, Op, tuple[str, ...]]] = [
        ("pixels/one", Affine((1 / 3,), (-1 / 7,)), (INPUT,)),
        (
            "pixels/each",
            Affine((1 / 0.229, 1 / 0.224, 1 / 0.225), (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225)),
            ("pixels/one",),
        ),
        ("stem/conv", Conv(8, three, explicit(1, 1, 1, 1), bias=True), ("pixels/each",)),
        ("stem/norm", BatchNorm(1e-3, 0.01), ("stem/conv",)),
        ("stem/pool", MaxPool(Window((3, 3)), explicit(1, 0, 2, 1, fill=LOWEST)), ("stem/norm",)),
        ("stem/relu", Relu(), ("stem/pool",)),
        ("a/depthwise/conv", Conv(8, Window((3, 3)), SAME, groups=8), ("stem/relu",)),
        ("a/norm", BatchNorm(1e-5, 0.1, scale=False), ("a/depthwise/conv",)),
        ("a/relu", Relu6(), ("a/norm",)),
        ("b/grouped", Conv(8, Window((3, 3)), SAME, groups=2), ("stem/relu",)),
        ("b/norm", BatchNorm(1e-5, 0.1, center=False), ("b/grouped",)),
        ("b/average", AvgPool(Window((3, 3)), explicit(1, 1, 1, 1)), ("b/norm",)),
        ("b/same", Identity(), ("b/average",)),
        ("sum", Add(), ("a/relu", "b/same")),
        ("join", ConcatChannels(), ("sum", "stem/relu")),
        ("dilated", Conv(6, Window((3, 3), (2, 2), (2, 2)), explicit(2, 2, 2, 2)), ("join",)),
        ("pool/mean", GlobalAvgPool(), ("dilated",)),
        ("pool/most", GlobalMaxPool(), ("dilated",)),
        ("pool/both", ConcatChannels(), ("pool/mean", "pool/most")),
        ("head/norm", BatchNorm(1e-3, 0.01), ("pool/both",)),
        ("head/relu6", Relu6(), ("head/norm",)),
        ("head/dense", Dense(7, bias=False), ("head/relu6",)),
        ("head/dense/norm", BatchNorm(1e-3, 0.01, scale=False, center=False), ("head/dense",)),
        ("head/relu", Relu(), ("head/dense/norm",)),
        ("head/each", Affine(tuple(0.1 * n for n in range(1, 8)), (-0.3,)), ("head/relu",)),
        ("head/one", Affine((1.1,), tuple(0.1 * n for n in range(7))), ("head/each",)),
        ("logits", Dense(5), ("head/one",)),
    ]
    return Graph(tuple(Node(path, op, inputs) for path, op, inputs in steps), 3, "logits")


@cache
def mobilenet_v2() -> Graph:
    """MobileNetV2 0.35 of 7 classes by its recipe, whose paths are keras.applications' names of layers."""
    member = find_recipe("mobilenet_v2_0.35").member("mobilenet_v2_0.35", "keras")
    graph = expand(member, {"classes": 7})
    names = {path: layer.name for path, layer in layer_names(member, graph).items()} | {INPUT: INPUT}
    nodes = (
        replace(node, path=names[node.path], inputs=tuple(names[each] for each in node.inputs))
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes), output=names[graph.output])
