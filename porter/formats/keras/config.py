"""The layers that a .keras file's config.json describes, read as plain JSON: nothing that it names is looked up or built."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.base.errors import FileError
from porter.formats.limits import read_json

LayerPath = tuple[str, ...]
"""Where Keras 3 puts a layer's variables: one `class_counter` per level of nested models, such as `(functional, conv2d_3)`."""


@dataclass(frozen=True)
class Described:
    """A layer as a config describes it: its own name, its class in Keras's snake case, and its arguments."""

    name: str
    kind: str
    arguments: Mapping[str, Any]


def snake_case(name: str) -> str:
    """A class's name as Keras counts it (keras/src/utils/naming.py, to_snake_case): `Conv2D` is `conv2d`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def describe_layers(text: bytes, path: Path) -> dict[LayerPath, Described]:
    """Every layer in the order of the config, which is topological; empty where the model is not made of a list of layers.

    A layer's counter is the number of layers of its class before it in its model (keras/src/saving/saving_lib.py,
    _save_container_state).

    Raises:
        FileError: it is not JSON, or not a Keras model's config.
    """
    try:
        described: dict[LayerPath, Described] = {}
        _describe(read_json(text), (), described)
        return described
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        message = f"config.json is not a Keras model's config: {type(error).__name__} {error}"
        raise FileError(message.splitlines()[0], where=str(path), next="save the model again") from None


def _describe(model: Mapping[str, Any], path: LayerPath, described: dict[LayerPath, Described]) -> None:
    counts: Counter[str] = Counter()
    for layer in model["config"].get("layers", ()):
        kind, arguments = snake_case(layer["class_name"]), layer["config"]
        here = (*path, f"{kind}_{counts[kind]}" if counts[kind] else kind)
        counts[kind] += 1
        described[here] = Described(str(layer.get("name") or arguments["name"]), kind, arguments)
        if isinstance(arguments.get("layers"), list):
            _describe(layer, here, described)
