"""Translates older Keras's names of layers and arguments into today's.

Keras 1 is translated as in keras/legacy/interfaces.py of Keras 2.0, for calls with the old arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porter.base.name_tables import JsonObject
from porter.formats.keras.config import snake_case
from porter.formats.keras.operations import OPERATIONS

MODELS = frozenset({"Functional", "Model", "Sequential"})
"""Classes whose config lists layers: `Functional` since TensorFlow 2.4, `Model` before."""

OPERATION = "keras.ops."
"""Prefix of an operation's class, because some layers have the same name: both have an Add."""
_OPERATIONS: Mapping[str, str] = {"divide": "true_divide", "rms_norm": "rms_normalization"}
"""Operations of Keras 3 whose function has another name, by their class in snake case."""
_OPERATIONS_AS_LAYERS: Mapping[str, str] = {
    "MaxPool": "MaxPooling2D",
    "AveragePool": "AveragePooling2D",
    "Resize": "Resizing",
}
"""Operations of Keras 3 that are layers of maps too, by their classes."""
_FUNCTIONS: Mapping[str, str] = {
    "getitem": "get_item",
    "reduce_mean": "mean",
    "reduce_max": "max",
    "reduce_sum": "sum",
    "divide": "true_divide",
    "truediv": "true_divide",
    "bias_add": "add",
    "pow": "power",
    "concat": "concatenate",
    "clip_by_value": "clip",
    "lrn": "local_response_normalization",
    "sub": "subtract",
    "mul": "multiply",
    "stop_gradient": "identity",
}
"""TensorFlow's functions with another name than in keras.ops, by the last part of the name."""
_FUNCTION_PACKAGES = frozenset(
    {"", "math", "nn", "__operators__", "linalg", "compat.v1", "compat.v1.nn", "compat.v1.math"}
)

_CLASSES: Mapping[str, str] = {
    "Convolution2D": "Conv2D",
    # tf.keras in TensorFlow 1.13 to 2.1 (tensorflow/python/keras/layers/normalization.py and
    # normalization_v2.py).
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "SyncBatchNormalization": "BatchNormalization",
}
_KERAS_1_ARGUMENTS: Mapping[str, str] = {
    "nb_filter": "filters",
    "subsample": "strides",
    "border_mode": "padding",
    "dim_ordering": "data_format",
    "output_dim": "units",
    "bias": "use_bias",
    "p": "rate",
}
_KERAS_1_ORDERINGS: Mapping[str, str] = {"tf": "channels_last", "th": "channels_first"}
COSINE = "Merge by cos"
"""A layer of Keras 1 that no later Keras has."""
_KERAS_1_MERGES: Mapping[str, str] = {
    "sum": "Add",
    "mul": "Multiply",
    "ave": "Average",
    "max": "Maximum",
    "concat": "Concatenate",
    "dot": "Dot",
    "cos": COSINE,
}
"""The layers of Merge's modes (keras/engine/topology.py of Keras 1.2.2); its other one is a function."""
_KERAS_1_PADS = ("top_pad", "bottom_pad", "left_pad", "right_pad")


DEFAULTS: Mapping[str, JsonObject] = {"ReLU": {"max_value": None}}
"""The arguments that every Keras writes, by which its own classes are told from a user's where a file does
not name their module.
"""


def operation_name(kind: str, arguments: JsonObject) -> str | None:
    """Return the name in keras.ops of the operation that a call computes: `true_divide` for the class
    `keras.ops.Divide`; None for a layer.

    A TFOpLambda of Keras 2 names a function of TensorFlow, which may be one that keras.ops lacks; `TFOpLambda
    NAME` for one that belongs to none of its packages for arithmetic and networks.
    """
    if kind in ("TFOpLambda", "SlicingOpLambda"):
        package, _, name = str(arguments.get("function")).rpartition(".")
        if package not in _FUNCTION_PACKAGES:
            return f"TFOpLambda {arguments.get('function')!r:.60}"
        return _FUNCTIONS.get(name, name)
    if not kind.startswith(OPERATION):
        return None
    name = snake_case(kind.removeprefix(OPERATION))
    return _OPERATIONS.get(name, name)


def operation(kind: str, arguments: JsonObject) -> tuple[str, JsonObject]:
    """Return an operation's class and arguments as those of a call; if a layer is the same, as those of the
    layer.

    Raises:
        ValueError: its size is not that of rows and columns.
    """
    if kind != "Resize":
        return _OPERATIONS_AS_LAYERS.get(kind, f"{OPERATION}{kind}"), arguments
    size = arguments.get("size")
    if not isinstance(size, list) or len(size) != 2:
        raise ValueError(f"a size of {size!r:.40}")
    return _OPERATIONS_AS_LAYERS[kind], {**arguments, "height": size[0], "width": size[1]}


def is_operation(layer: JsonObject) -> bool:
    """Return whether an entry in a model's layers is an operation of Keras 3. A legacy .h5 leaves out the
    module that says so.
    """
    module, nodes = layer.get("module"), layer.get("inbound_nodes")
    if isinstance(module, str):
        return module.startswith("keras.src.ops.")
    by_keras_3 = isinstance(nodes, list) and bool(nodes) and isinstance(nodes[0], dict)
    kind = layer["class_name"]
    has_its_kind = kind in _OPERATIONS_AS_LAYERS or operation_name(f"{OPERATION}{kind}", {}) in OPERATIONS
    return by_keras_3 and has_its_kind and "trainable" not in layer["config"]


def modern(kind: str, arguments: JsonObject) -> tuple[str, JsonObject]:
    """Return a layer's class and arguments as Keras 2 and 3 spell them: a Convolution2D with `nb_filter`
    becomes a Conv2D with `filters`. A Merge of Keras 1 becomes the layer of its mode; an unknown mode becomes
    a class that no layer has.
    """
    if kind == "Merge":
        mode = str(arguments.get("mode", "sum"))
        axes = {"axis": arguments.get("concat_axis", -1), "axes": arguments.get("dot_axes", -1)}
        return _KERAS_1_MERGES.get(mode, f"Merge by {mode:.20}"), {**arguments, **axes}
    kind = _CLASSES.get(kind, kind)
    axis = arguments.get("axis")
    if kind == "BatchNormalization" and isinstance(axis, list) and len(axis) == 1:
        # tf.keras allows several axes.
        arguments = {**arguments, "axis": axis[0]}
    if kind == "LeakyReLU" and "alpha" in arguments:
        arguments = {**arguments, "negative_slope": arguments["alpha"]}
    if kind == "ZeroPadding2D" and "padding" in arguments:
        arguments = {**arguments, "padding": _as_sides(arguments["padding"])}
    return kind, _rename_keras_1_arguments(arguments)


def _rename_keras_1_arguments(arguments: JsonObject) -> JsonObject:
    """Return arguments as Keras 2 spells them; unchanged where none is spelt as Keras 1 did."""
    if not arguments.keys() & {"nb_filter", "border_mode", "dim_ordering", "output_dim", "p"}:
        return arguments
    renamed = {_KERAS_1_ARGUMENTS.get(name, name): value for name, value in arguments.items()}
    if "nb_row" in renamed:
        renamed["kernel_size"] = [renamed["nb_row"], renamed["nb_col"]]
    ordering = renamed.get("data_format")
    if isinstance(ordering, str):
        renamed["data_format"] = _KERAS_1_ORDERINGS.get(ordering, ordering)
    return renamed


def _as_sides(padding: Any) -> Any:
    """Return pads as rows and columns, `[[top, bottom], [left, right]]`: Keras 1.2 wrote the pads of four
    sides as one list, or by their names (its keras/layers/convolutional.py). Other pads stay as they are.
    """
    if isinstance(padding, dict) and padding.keys() <= set(_KERAS_1_PADS):
        padding = [padding.get(side, 0) for side in _KERAS_1_PADS]
    if isinstance(padding, list) and len(padding) == 4:
        return [padding[:2], padding[2:]]
    return padding
