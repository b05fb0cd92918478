"""Layers that Keras numbers itself, in files of models that were not the first of their session.

A layer without a name gets its class's name and a count that goes on through the process: `conv2d` to
`conv2d_93` in one InceptionV3, `conv2d_94` to `conv2d_187` in the next; Keras 2 began at `conv2d_1` (get_uid
in keras/backend.py, auto_name in Keras 3's keras/src/utils/naming.py). So the numbers give the order in which
the layers of a class were made.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from porter.frameworks.tf.layout import COUNTER_NAMES

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
