"""The layers that a .keras file's config.json describes, read as plain JSON: nothing that it names is looked
up or built.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from porter.base.errors import FileError, escaped
from porter.base.name_tables import JsonObject
from porter.formats.damage import ERRORS_OF_JSON, refusing_damage
from porter.formats.limits import read_json

WeightsPath = tuple[str, ...]
"""Where Keras 3 puts a layer's variables: one `class_counter` per level of nested models, such as
`(functional, conv2d_3)`.
"""


_PACKAGES = frozenset({"keras", "tensorflow", "tf_keras"})
"""Packages of Keras's own layers."""
_STEPWISE = frozenset({"Activation", "Dense", "Dropout", "ELU", "LeakyReLU", "ReLU"})
"""Layers that do the same to each step of a sequence whether it is alone or not."""


class _Unnamed(ValueError):
    """A layer lacks its name: Keras saves only the arguments of a class that has no `get_config`
    (keras/src/ops/operation.py, Operation.get_config).
    """

    next = (
        "give the class a get_config() that returns super().get_config() and the class's own arguments, and "
        "save the model again"
    )


@contextmanager
def refusing_damaged_config(where: Path | str) -> Iterator[None]:
    """Make one FileError of what a damaged config raises within the block. A layer without a name has its own
    next step.
    """
    message = "the file's description of its model cannot be read"
    with refusing_damage(where, "save the model again", message, ERRORS_OF_JSON):
        try:
            yield
        except _Unnamed as error:
            raise FileError(str(error), where=where, next=error.next) from None


@dataclass(frozen=True)
class Described:
    """A layer as a config describes it: its own name, its class in Keras's snake case, and its arguments."""

    name: str
    kind: str
    arguments: JsonObject


def snake_case(name: str) -> str:
    """Return a class's name as Keras counts it (keras/src/utils/naming.py, to_snake_case): `conv2d` for
    `Conv2D`.
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def inner_layer(layer: JsonObject) -> JsonObject | None:
    """Return the layer that a wrapper holds and computes in inference; None for any other layer, for a user's
    wrapper, and for a TimeDistributed whose layer may treat the steps of a sequence otherwise together than
    alone.

    SpectralNormalization changes its layer's kernel in training, as it is called (its `call` in
    keras/src/layers/normalization/spectral_normalization.py).
    """
    kind, config = layer["class_name"], layer["config"]
    inner = config.get("layer") if kind in ("SpectralNormalization", "TimeDistributed") else None
    if not isinstance(inner, dict) or is_foreign(layer):
        return None
    if kind == "TimeDistributed" and inner.get("class_name") not in _STEPWISE:
        return None
    return inner


def is_foreign(layer: JsonObject) -> bool:
    """Return whether a layer's class is not Keras's own: a user's `ReLU` is not Keras's.

    Since 2.12 Keras writes a module beside the class, and a registered name for classes that are not its own.
    The module of a class in a script or a notebook is null (keras/src/saving/serialization_lib.py,
    serialize_keras_object).
    """
    module = layer.get("module")
    if isinstance(module, str):
        return module.partition(".")[0] not in _PACKAGES
    return layer.get("registered_name") is not None


def layer_name(layer: JsonObject) -> str:
    """Return a layer's own name. A model of connected layers states it beside the layer's config too; a
    Sequential without any is called `sequential`.

    Raises:
        ValueError: it is not text. _Unnamed: there is none.
    """
    config = layer["config"]
    name = layer.get("name") or (config.get("name") if isinstance(config, dict) else "sequential")
    if name is None:
        kind = escaped(str(layer["class_name"]))
        message = f"the config of a layer of class '{kind:.60}' was not saved whole, because the class has no"
        raise _Unnamed(f"{message} get_config(): the file lacks the layer's name")
    if not isinstance(name, str):
        raise ValueError("a layer's name is not text")
    return name


def describe_layers(text: bytes, path: Path) -> dict[WeightsPath, Described]:
    """Return every layer by its path in the file of weights, such as `(functional, conv2d_1)`, in the order
    of the config, which is topological; nothing where the model is not made of a list of layers.

    A layer's counter is the number of layers of its class before it in its model
    (keras/src/saving/saving_lib.py, _save_container_state).

    Raises:
        FileError: it is not JSON, or not a Keras model's config.
    """
    described: dict[WeightsPath, Described] = {}
    with refusing_damaged_config(path):
        _describe(read_json(text), (), described)
    return described


def _describe(model: JsonObject, path: WeightsPath, described: dict[WeightsPath, Described]) -> None:
    """Add the layers of a model, and of the models and wrappers within it, to `described`, by their paths in
    the file of weights.
    """
    counts: Counter[str] = Counter()
    for layer in model["config"].get("layers", ()):
        kind = snake_case(layer["class_name"])
        arguments = layer["config"]
        layer_path = (*path, f"{kind}_{counts[kind]}" if counts[kind] else kind)
        counts[kind] += 1
        described[layer_path] = Described(layer_name(layer), kind, arguments)
        if isinstance(arguments.get("layers"), list):
            _describe(layer, layer_path, described)
        elif (inner := inner_layer(layer)) is not None:
            described[*layer_path, "layer"] = _describe_layer(inner)


def _describe_layer(layer: JsonObject) -> Described:
    return Described(layer_name(layer), snake_case(layer["class_name"]), layer["config"])
