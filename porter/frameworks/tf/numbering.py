"""Layers that Keras numbers itself: in `.weights.h5` files, which hold no names, and in files of models that
were not the first of their session.

A layer without a name gets its class's name and a count that goes on through the process: `conv2d` to
`conv2d_93` in one InceptionV3, `conv2d_94` to `conv2d_187` in the next; Keras 2 began at `conv2d_1` (get_uid
in keras/backend.py, auto_name in Keras 3's keras/src/utils/naming.py). So the numbers give the order in which
the layers of a class were made.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from porter.frameworks.tf.call_order import layers_in_order
from porter.frameworks.tf.layout import COUNTER_NAMES, keras_class, split_separable
from porter.graph import Graph, Node

_NUMBERED_LAYER = re.compile(
    rf"(?P<prefix>(?:.*/)?)(?P<kind>{'|'.join(COUNTER_NAMES.values())})(?:_(?P<number>\d{{1,9}}))?"
)

_NumberedLayers = dict[str, dict[str, list[tuple[int, str]]]]


def numbered_layers(layers: Collection[str], tensors: Collection[str]) -> dict[str, str]:
    """Pair those of `layers` that Keras numbered with a file's layers, class by class, in the order of their
    numbers: `{"conv2d": "conv2d_94", "conv2d_1": "conv2d_95"}`.

    Args:
        layers: names as in a session's first model.
        tensors: names of a file's tensors; of several prefixes, the one with the most such layers counts.

    Returns: the names in the file, without the prefix, by the names in `layers`. Classes of which the file
    has too few layers are left out.
    """
    wanted = _by_class(layers).get("", {})
    prefixes = _by_class({name.rpartition("/")[0] for name in tensors})
    if not wanted or not prefixes:
        return {}
    likeliest = max(prefixes.values(), key=lambda classes: sum(len(classes.get(kind, ())) for kind in wanted))
    names: dict[str, str] = {}
    for kind, numbered in wanted.items():
        stored = likeliest.get(kind, [])
        if len(stored) < len(numbered):
            continue
        # The file may have further layers, but the first ones are these.
        for (_, layer), (_, stored_layer) in zip(sorted(numbered), sorted(stored), strict=False):
            names[layer] = stored_layer
    return names


def _by_class(layers: Collection[str]) -> _NumberedLayers:
    """Group the layers that Keras numbered, by prefix and class: `model/conv2d_1` is under `model/` and
    `conv2d`, as (1, "conv2d_1").
    """
    by_class: _NumberedLayers = defaultdict(lambda: defaultdict(list))
    for layer in layers:
        parts = _NUMBERED_LAYER.fullmatch(layer)
        if parts is not None:
            by_class[parts["prefix"]][parts["kind"]].append(
                (int(parts["number"] or 0), layer.removeprefix(parts["prefix"]))
            )
    return by_class


def first_names(model: Any) -> dict[str, Any]:
    """Return a model's layers by the names that they would have in the first model of a process.

    Layers that keras.applications does not name count on through the process (`conv2d_94` in a second
    InceptionV3); files hold the first model's count.
    """
    numbers = {layer.name: _automatic_number(layer) for layer in model.layers}
    first: dict[str, int] = {}
    for layer in model.layers:
        number = numbers[layer.name]
        if number is not None:
            kind = type(layer).__name__
            # the number of the class's first layer in this model
            first[kind] = min(first.get(kind, number), number)
    by_name: dict[str, Any] = {}
    for layer in model.layers:
        number = numbers[layer.name]
        name = layer.name
        if number is not None:
            count = number - first[type(layer).__name__]
            name = re.sub(r"_\d+$", "", name) + (f"_{count}" if count else "")
        by_name[name] = layer
    return by_name


def _automatic_number(layer: Any) -> int | None:
    """Return the number in a name that Keras made from the layer's class (`conv2d` is 0); None for a name
    that someone chose.
    """
    match = re.fullmatch(r"([a-z0-9_]*?)(?:_(\d+))?", layer.name)
    if match is None or match[1].replace("_", "") != type(layer).__name__.lower():
        return None
    return int(match[2] or 0)


def counted_layers(
    graph: Graph, convolutions: Collection[str] = (), layers: Mapping[str, str] = {}
) -> dict[str, str]:
    """Return the names, such as `conv2d_3`, that Keras 3's `.weights.h5` gives the layers of the graph's
    Keras model.

    Such a file holds no layer names: it counts layers by class in the order of `model.layers`
    (keras/src/saving/saving_lib.py, `_save_container_state`). A site padded by explicit amounts is two
    layers deep, because Keras needs a ZeroPadding2D; the depthwise half of a separable convolution is one
    layer with the node after it.

    Args:
        graph: with the inputs of adds and concats in Keras's order.
        convolutions: paths of dense nodes that the Keras model has as 1x1 convolutions, such as MobileNet
            v1's head.
        layers: the layers' own names by path, of which those of separable convolutions matter.
    """
    # The layer and the kernel of each half of a separable convolution, by path.
    split_names = {path: split_separable(layer) for path, layer in layers.items()}
    kernels = {path: (layer, kernel) for path, (layer, kernel) in split_names.items() if kernel}
    depthwise_halves = {path for path, (_, kernel) in kernels.items() if kernel.startswith("depthwise")}
    nodes = graph.by_path

    def layers_in(path: str) -> int:
        if path in nodes and _has_pad_layer(nodes[path]):
            return 2
        return 0 if path in depthwise_halves else 1

    order = layers_in_order(
        [graph.output],
        lambda path: nodes[path].inputs if path in nodes else (),
        layer_of=lambda path: path,
        layers_in=layers_in,
    )
    counts: Counter[str] = Counter()
    counted_names: dict[str, str] = {}
    names: dict[str, str] = {}
    for path in filter(nodes.__contains__, order):  # without the inputs
        layer, kernel = kernels.get(path, (path, ""))
        if kernel:
            kind: str | None = "SeparableConv2D"
        elif path in convolutions:
            kind = "Conv2D"
        else:
            kind = keras_class(graph, nodes[path])
        if kind is None:
            continue
        # The two halves of a separable convolution are one layer, counted once.
        if layer not in counted_names:
            counted_names[layer] = COUNTER_NAMES[kind] + (f"_{counts[kind]}" if counts[kind] else "")
            counts[kind] += 1
        names[path] = f"{counted_names[layer]}/{kernel}" if kernel else counted_names[layer]
    return names


def _has_pad_layer(node: Node) -> bool:
    """Say whether Keras needs a ZeroPadding2D before the node's layer."""
    convention = getattr(node.op, "convention", None)
    return convention is not None and convention.rule == "explicit" and any(convention.pads)
